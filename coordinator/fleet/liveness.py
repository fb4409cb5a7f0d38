"""Liveness of a connected worker, by its heartbeats and the engine stalls that they report."""

import asyncio
import enum
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tokenwire.errors import Unavailable
from tokenwire.options import Bounds, Option, Section, check_bounds, option
from tokenwire.v1 import inference_pb2 as pb

log = logging.getLogger(__name__)

_CHECK_INTERVAL_S = 0.25
_LATE_S = 0.1
_UNCOVERED_EXTRA_S = 60.0
"""How much longer an engine may stall while no other worker could take over its requests."""


class LossReason(enum.StrEnum):
    """Why a worker was lost."""

    CLOSED = "closed"
    """Its connection ended."""
    HEARTBEAT_TIMEOUT = "heartbeat_timeout"
    """It sent no heartbeat: a failure of the machine, the process or the network."""
    PROTOCOL_ERROR = "protocol_error"
    """Its session violated the protocol."""
    STALLED = "stalled"
    """It sent heartbeats, but its engine made no step."""


@dataclass(frozen=True, slots=True)
class LivenessSettings:
    """Timeouts of heartbeats and of engine stalls."""

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
    """Monitors one session. Time in which this process did not run does not count."""

    def __init__(
        self, settings: LivenessSettings, clock: Callable[[], float] = time.monotonic, worker: str = "the worker"
    ) -> None:
        self.last_event_at = 0.0
        """When the last event was received; set by the reader of the session."""
        self.stalled = False
        """Whether the engine is stalled, and the worker kept because no other one could take over."""
        self.loss_reason = LossReason.CLOSED
        """The reason if the session ends now, or why the last one ended."""
        self._settings = settings
        self._clock = clock
        self._worker = worker
        self._checked_at = 0.0

    @asynccontextmanager
    async def heartbeat_timeout(self, heartbeat_ms: int) -> AsyncIterator[None]:
        """Raise Unavailable in the body of the `async with` when the heartbeat timeout expires.

        Never without a timeout, or for a worker that announces no heartbeats.
        """
        if not (heartbeat_ms and self._settings.heartbeat_timeout_s):
            yield
            return
        timeout = asyncio.timeout(None)
        watching = asyncio.create_task(self._watch(timeout))
        try:
            async with timeout:
                yield
        except TimeoutError:
            raise Unavailable(watching.result()) from None
        finally:
            watching.cancel()

    def on_connected(self) -> None:
        """Reset for a new session."""
        self.stalled, self.loss_reason = False, LossReason.CLOSED

    def start(self) -> None:
        """Start the heartbeat timeout."""
        self.last_event_at = self._checked_at = self._clock()

    def is_overdue(self) -> bool:
        """Check the heartbeat timeout once. A delayed check extends it by the delay."""
        now = self._clock()
        late = now - self._checked_at - _CHECK_INTERVAL_S
        if late > _LATE_S:
            # Events that came meanwhile may have been read before this check: they count from now, not from later.
            self.last_event_at = min(now, self.last_event_at + late)
        self._checked_at = now
        return now - self.last_event_at > self._settings.heartbeat_timeout_s

    def check_heartbeat(self, heartbeat: pb.Heartbeat, is_covered: Callable[[], bool]) -> None:
        """Update whether the engine is stalled. Raises Unavailable if it is and another worker could take over.

        Without one (`is_covered`) moving the requests gains nothing, so the timeout is longer.
        """
        stall = self._stall(heartbeat)
        if not stall:
            self.on_step()
            return
        limit_s = self._settings.engine_stall_timeout_s + _UNCOVERED_EXTRA_S
        if is_covered() or heartbeat.stalled_ms > 1000 * limit_s + heartbeat.allowance_ms:
            self.loss_reason = LossReason.STALLED
            raise Unavailable(stall)
        if not self.stalled:
            self.stalled = True
            log.warning("worker %s stalled: %s; no other worker could take over", self._worker, stall)

    def on_step(self) -> None:
        """Record a step of the engine."""
        if self.stalled:
            self.stalled = False
            log.info("worker %s recovered from its stall", self._worker)

    async def _watch(self, timeout: asyncio.Timeout) -> str:
        """Wait until the heartbeat timeout has expired, let the other one expire, and return the error message."""
        self.start()
        while not self.is_overdue():  # noqa: ASYNC110 (it waits for time to pass)
            await asyncio.sleep(_CHECK_INTERVAL_S)
        self.loss_reason = LossReason.HEARTBEAT_TIMEOUT
        timeout.reschedule(0)  # here, as the session may end before anything that is called when this has
        return f"no heartbeat for {self._settings.heartbeat_timeout_s:g} s"

    def _stall(self, heartbeat: pb.Heartbeat) -> str:
        """Return a description of the engine's stall; empty within the timeout."""
        timeout_s = self._settings.engine_stall_timeout_s
        if not timeout_s or heartbeat.stalled_ms <= 1000 * timeout_s + heartbeat.allowance_ms:
            return ""
        stall = f"its engine has made no step for {heartbeat.stalled_ms / 1000:.1f} s"
        if heartbeat.HasField("engine_cpu_ms"):
            stall += f" and used {heartbeat.engine_cpu_ms / 1000:.1f} s of CPU time meanwhile"
        return stall
