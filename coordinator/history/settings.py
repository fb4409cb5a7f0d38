"""How much is kept of what was said, for how long, and where."""

from dataclasses import dataclass

from tokenwire.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class HistorySettings:
    """Bounds of the store."""

    max_bytes: int = 256 * 1024 * 1024
    """What the store in this process may take."""
    ttl_s: float = 3600.0
    """How long a turn is kept since it was last used."""

    def __post_init__(self) -> None:
        for flag, value in (("--history-mb", self.max_bytes), ("--history-ttl", self.ttl_s)):
            if value <= 0:
                raise InvalidRequest(f"{flag} must be positive, got {value:g}")
