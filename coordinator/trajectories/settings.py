"""Settings of trajectories: whether sessions are recorded, and how much of them is kept, where, and for how long."""

from dataclasses import dataclass

from tokenwire.coordinator.shared_redis import check_url
from tokenwire.errors import InvalidRequest
from tokenwire.options import Bounds, Option, Section, Unit, check_bounds, option

_ENABLE_FLAG = "--enable-trajectories"
_STORE_FLAG = "--trajectories-store"


@dataclass(frozen=True, slots=True)
class TrajectorySettings:
    """Bounds and location of recorded sessions."""

    enabled: bool = option(
        False,
        Option(
            _ENABLE_FLAG,
            "Record all tokens of requests that name a session, with log-probabilities and weight versions, and serve "
            "/sessions.",
            Section.HISTORY,
        ),
    )
    max_bytes: int = option(
        256 * 2**20,
        Option(
            "--trajectories-mb",
            "Maximum size of recorded sessions, in memory or in a directory. Beyond it, the least recently used ones "
            "of the tenant that has most are dropped.",
            Section.HISTORY,
            unit=Unit.MiB,
            bounds=Bounds(above=0),
        ),
    )
    max_session_bytes: int = option(
        32 * 2**20,
        Option(
            "--trajectories-session-mb",
            "Maximum size of one recorded session. Turns beyond it are not stored, and count as lost; rewards and "
            "metadata have 1 MiB more.",
            Section.HISTORY,
            unit=Unit.MiB,
            bounds=Bounds(above=0),
        ),
    )
    ttl_s: float = option(
        86400.0,
        Option(
            "--trajectories-ttl",
            "Seconds that a session is kept after its last turn or reward.",
            Section.HISTORY,
            bounds=Bounds(above=0),
        ),
    )
    store: str | None = option(
        None,
        Option(
            _STORE_FLAG,
            "Where sessions are kept: a directory that the processes of this host share, or a Redis that coordinators "
            "share, redis://HOST:PORT/DB, which needs the extra `redis`.",
            Section.HISTORY,
            default_text="in memory",
        ),
    )
    store_password: str | None = option(
        None,
        Option(
            "--trajectories-store-password-file",
            "File with the password of a Redis of --trajectories-store; or set TOKENWIRE_TRAJECTORIES_STORE_PASSWORD.",
            Section.HISTORY,
            path="existing file",
            contents="password of the store of trajectories",
        ),
    )

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.store is not None:
            if not self.enabled:
                raise InvalidRequest(f"{_STORE_FLAG} needs {_ENABLE_FLAG}")
            if self.is_redis:
                check_url(self.store, _STORE_FLAG)

    @property
    def is_redis(self) -> bool:
        """Whether the store is a Redis, and no directory."""
        return self.store is not None and "://" in self.store

    @property
    def is_of_one_process(self) -> bool:
        """Whether sessions are recorded, and only the process that recorded a turn knows it."""
        return self.enabled and self.store is None
