"""How much is kept of what was said, for how long, and where."""

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tokenwire.errors import InvalidRequest

_SCHEMES = ("redis", "rediss", "unix")


@dataclass(frozen=True, slots=True)
class HistorySettings:
    """Bounds of the store."""

    max_bytes: int = 256 * 1024 * 1024
    """What the store in this process may take."""
    ttl_s: float = 3600.0
    """How long a turn is kept since it was last used."""
    store_url: str | None = None
    """Redis, where coordinators share what was said; without a password."""
    store_password: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for flag, value in (("--history-mb", self.max_bytes), ("--history-ttl", self.ttl_s)):
            if value <= 0:
                raise InvalidRequest(f"{flag} must be positive, got {value:g}")
        if self.store_url is None:
            return
        url = urlsplit(self.store_url)
        if url.scheme not in _SCHEMES:
            raise InvalidRequest(f"--history-store must be a URL that begins with {', '.join(_SCHEMES)}.")
        if url.password:
            raise InvalidRequest(
                "--history-store must not hold a password, which others could read: "
                "put it into a file, --history-store-password-file."
            )
