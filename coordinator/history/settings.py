"""Settings of the history: its size, TTL and shared store."""

from dataclasses import dataclass

from tokenwire.coordinator.shared_redis import check_url
from tokenwire.options import Bounds, Option, Section, Unit, check_bounds, option

_STORE_FLAG = "--history-store"


@dataclass(frozen=True, slots=True)
class HistorySettings:
    """Bounds and location of stored turns."""

    max_bytes: int = option(
        256 * 2**20,
        Option(
            "--history-mb",
            "Maximum memory of token ids of earlier turns; see --token-history.",
            Section.HISTORY,
            unit=Unit.MiB,
            bounds=Bounds(above=0),
        ),
    )
    ttl_s: float = option(
        3600.0,
        Option(
            "--history-ttl", "Seconds that a turn is kept after its last use.", Section.HISTORY, bounds=Bounds(above=0)
        ),
    )
    store_url: str | None = option(
        None,
        Option(
            _STORE_FLAG,
            "Redis that coordinators share earlier turns in: redis://HOST:PORT/DB. Needs the extra `redis`.",
            Section.HISTORY,
        ),
    )
    store_password: str | None = option(
        None,
        Option(
            "--history-store-password-file",
            "File with the password of --history-store; or set TOKENWIRE_HISTORY_STORE_PASSWORD.",
            Section.HISTORY,
            path="existing file",
            contents="password of the history store",
        ),
    )

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.store_url is not None:
            check_url(self.store_url, _STORE_FLAG)
