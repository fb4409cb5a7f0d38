"""Settings of the history."""

import pytest

from tokenwire.coordinator.history.settings import HistorySettings
from tokenwire.errors import InvalidRequest


@pytest.mark.parametrize("url", ["redis://:secret@host:1", "http://host:1", "host:1"])
def test_a_url_must_be_redis_without_a_password(url: str) -> None:
    """The error names the option and never contains the URL."""
    with pytest.raises(InvalidRequest, match="--history-store must") as raised:
        HistorySettings(store_url=url)
    assert "secret" not in raised.value.message


@pytest.mark.parametrize("url", ["redis://host:1/0", "rediss://host:1", "unix:///run/redis.sock"])
def test_stores_are_reached_over_any_of_rediss_transports(url: str) -> None:
    """In plain text, over TLS, and by a socket."""
    assert HistorySettings(store_url=url).store_url == url


@pytest.mark.parametrize("bounds", [{"max_bytes": 0}, {"ttl_s": 0}])
def test_bounds_are_positive(bounds: dict[str, int]) -> None:
    """Nothing could be found otherwise."""
    with pytest.raises(InvalidRequest):
        HistorySettings(**bounds)  # type: ignore[arg-type]
