"""Whether a connected worker is alive: by its heartbeats, and by what they say of its engine."""

import asyncio
import enum
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from tokenwire.errors import Unavailable
from tokenwire.options import Bounds, Option, Section, check_bounds, option
from tokenwire.v1 import inference_pb2 as pb

log = logging.getLogger(__name__)

_LOOK_S = 0.25
_LATE_S = 0.1
_ALONE_S = 60.0
"""How much longer an engine may stall when no other worker could go on with its requests."""


class LossReason(enum.StrEnum):
    """How a worker was lost."""

    CLOSED = "closed"
    """Its connection ended."""
    HEARTBEAT_TIMEOUT = "heartbeat_timeout"
    """It sent no heartbeat: the machine, its process or the network."""
    PROTOCOL_ERROR = "protocol_error"
    """Its session broke the rules of the wire."""
    STALLED = "stalled"
    """It sent heartbeats, and its engine made no step."""


@dataclass(frozen=True, slots=True)
class LivenessSettings:
    """How long a worker may be silent."""

    heartbeat_timeout_s: float = option(
        4.0,
        Option(
            "--heartbeat-timeout",
            "Seconds without a heartbeat after which a worker is lost; 0: only when its connection closes.",
            Section.FAILOVER,
            bounds=Bounds(at_least=0),
        ),
    )
    engine_stall_timeout_s: float = option(
        4.0,
        Option(
            "--engine-stall-timeout",
            "Seconds without a step after which an engine with requests is stalled, in addition to what its "
            "worker expects; 0: unlimited.",
            Section.FAILOVER,
            bounds=Bounds(at_least=0),
        ),
    )

    def __post_init__(self) -> None:
        check_bounds(self)


class LivenessMonitor:
    """Watches one session. Time in which this process did not run is nobody's silence."""

    def __init__(
        self, settings: LivenessSettings, clock: Callable[[], float] = time.monotonic, worker: str = "the worker"
    ) -> None:
        self.heard_at = 0.0
        """When the last event came; set by whoever reads."""
        self.stalled = False
        """Whether the engine stalls, and the worker is kept because nobody else could go on."""
        self.lost_by = LossReason.CLOSED
        """What the present session will have ended by, or the last one did."""
        self._settings = settings
        self._clock = clock
        self._worker = worker
        self._looked_at = 0.0

    async def watch(self) -> str:
        """Return what is wrong once the worker has been silent for too long."""
        if not self._settings.heartbeat_timeout_s:
            await asyncio.Event().wait()
        self.begin()
        while not self.is_overdue():  # noqa: ASYNC110 (time is what it waits for)
            await asyncio.sleep(_LOOK_S)
        self.lost_by = LossReason.HEARTBEAT_TIMEOUT
        return f"silent for {self._settings.heartbeat_timeout_s:g} s"

    def connected(self) -> None:
        """Begin with a new session."""
        self.stalled, self.lost_by = False, LossReason.CLOSED

    def begin(self) -> None:
        """Begin to watch."""
        self.heard_at = self._looked_at = self._clock()

    def is_overdue(self) -> bool:
        """Look once: a look that comes late excuses the worker for as long."""
        now = self._clock()
        late = now - self._looked_at - _LOOK_S
        if late > _LATE_S:
            self.heard_at += late
        self._looked_at = now
        return now - self.heard_at > self._settings.heartbeat_timeout_s

    def judge(self, heartbeat: pb.Heartbeat, is_covered: Callable[[], bool]) -> None:
        """Note whether the engine stalls. Raises Unavailable when it does and `is_covered`: others could go on.

        Where nobody could, requests gain nothing by being taken away; but not for ever.
        """
        problem = self._stall(heartbeat)
        if not problem:
            self.recovered()
            return
        limit_s = self._settings.engine_stall_timeout_s + _ALONE_S
        if is_covered() or heartbeat.stalled_ms > 1000 * limit_s + heartbeat.allowance_ms:
            self.lost_by = LossReason.STALLED
            raise Unavailable(problem)
        if not self.stalled:
            self.stalled = True
            log.warning("worker %s stalls: %s; no other worker could take over", self._worker, problem)

    def recovered(self) -> None:
        """Hear of a step."""
        if self.stalled:
            self.stalled = False
            log.info("worker %s: its engine makes steps again", self._worker)

    def _stall(self, heartbeat: pb.Heartbeat) -> str:
        timeout_s = self._settings.engine_stall_timeout_s
        if not timeout_s or heartbeat.stalled_ms <= 1000 * timeout_s + heartbeat.allowance_ms:
            return ""
        problem = f"its engine has made no step for {heartbeat.stalled_ms / 1000:.1f} s"
        if heartbeat.HasField("engine_cpu_ms"):
            problem += f" and used {heartbeat.engine_cpu_ms / 1000:.1f} s of CPU time meanwhile"
        return problem
