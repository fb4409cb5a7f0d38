"""Opens the store that the settings ask for."""

from tokenwire.coordinator.history.settings import HistorySettings
from tokenwire.coordinator.history.shared_store import SharedStore
from tokenwire.coordinator.history.store import HistoryStore, MemoryStore
from tokenwire.errors import InvalidRequest


def open_store(settings: HistorySettings) -> HistoryStore:
    """Return the store of this process, in front of Redis where that is configured. Raises InvalidRequest."""
    own = MemoryStore(settings.max_bytes, settings.ttl_s)
    if settings.store_url is None:
        return own
    try:
        from tokenwire.coordinator.history.redis_store import RedisStore
    except ImportError as error:
        raise InvalidRequest("--history-store needs the package redis: pip install 'tokenwire[redis]'") from error
    return SharedStore(own, RedisStore(settings))
