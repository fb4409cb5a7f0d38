"""Settings of the store of responses: whether there is one, its size, TTL and shared store."""

from dataclasses import dataclass

from tokenwire.coordinator.shared_redis import check_url
from tokenwire.errors import InvalidRequest
from tokenwire.options import Bounds, Option, Section, Unit, check_bounds, option

_ENABLE_FLAG = "--enable-responses-store"
_STORE_FLAG = "--responses-store"


@dataclass(frozen=True, slots=True)
class ResponseStoreSettings:
    """Bounds and location of stored responses, and of those that run in the background."""

    enabled: bool = option(
        False,
        Option(
            _ENABLE_FLAG,
            "Store responses of /v1/responses, unless a request has store: false, so that clients can retrieve and "
            "continue them by their ids, and run them in the background.",
            Section.HISTORY,
        ),
    )
    max_bytes: int = option(
        128 * 2**20,
        Option(
            "--responses-store-mb",
            "Maximum memory of stored responses. Beyond it, who has most loses the least recently used ones.",
            Section.HISTORY,
            unit=Unit.MiB,
            bounds=Bounds(above=0),
        ),
    )
    ttl_s: float = option(
        86400.0,
        Option(
            "--responses-store-ttl",
            "Seconds that a response is stored after its last use.",
            Section.HISTORY,
            bounds=Bounds(above=0),
        ),
    )
    store_url: str | None = option(
        None,
        Option(
            _STORE_FLAG,
            "Redis that coordinators share stored responses in: redis://HOST:PORT/DB. Needs the extra `redis`.",
            Section.HISTORY,
        ),
    )
    store_password: str | None = option(
        None,
        Option(
            "--responses-store-password-file",
            "File with the password of --responses-store; or set TOKENWIRE_RESPONSES_STORE_PASSWORD.",
            Section.HISTORY,
            path="existing file",
            contents="password of the store of responses",
        ),
    )
    max_background: int = option(
        64,
        Option(
            "--max-background-responses",
            "Maximum number of responses that run in the background. One client may have half of what others leave.",
            Section.HISTORY,
            bounds=Bounds(at_least=1),
        ),
    )

    @property
    def is_of_one_process(self) -> bool:
        """Whether responses are stored, and only the process that made one knows it."""
        return self.enabled and self.store_url is None

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.store_url is not None:
            if not self.enabled:
                raise InvalidRequest(f"{_STORE_FLAG} needs {_ENABLE_FLAG}")
            check_url(self.store_url, _STORE_FLAG)
