"""Whether a connected worker is alive: by its heartbeats, and by what they say of its engine."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb

_LOOK_S = 0.25
_LATE_S = 0.1


@dataclass(frozen=True, slots=True)
class VigilSettings:
    """How long a worker may be silent."""

    heartbeat_timeout_s: float = 4.0
    """How long nothing may come from a worker that sends heartbeats; 0: for ever."""
    engine_stall_timeout_s: float = 4.0
    """How long an engine with sequences may make no step, beyond what the worker calls in order; 0: for ever."""

    def __post_init__(self) -> None:
        for name in ("heartbeat_timeout", "engine_stall_timeout"):
            if getattr(self, f"{name}_s") < 0:
                raise InvalidRequest(
                    f"--{name.replace('_', '-')} must not be negative, got {getattr(self, f'{name}_s'):g}"
                )


class Vigil:
    """Watches one session. Time in which this process did not run is nobody's silence."""

    def __init__(self, settings: VigilSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self.heard_at = 0.0
        """When the last event came; set by whoever reads."""
        self._settings = settings
        self._clock = clock
        self._looked_at = 0.0

    async def watch(self) -> str:
        """Return what is wrong once the worker has been silent for too long."""
        if not self._settings.heartbeat_timeout_s:
            await asyncio.Event().wait()
        self.begin()
        while not self.is_overdue():  # noqa: ASYNC110 (time is what it waits for)
            await asyncio.sleep(_LOOK_S)
        return f"silent for {self._settings.heartbeat_timeout_s:g} s"

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

    def stall(self, heartbeat: pb.Heartbeat) -> str:
        """Say what is wrong with the engine, by a heartbeat; empty: nothing."""
        timeout_s = self._settings.engine_stall_timeout_s
        if not timeout_s or heartbeat.stalled_ms <= 1000 * timeout_s + heartbeat.allowance_ms:
            return ""
        return f"its engine has made no step for {heartbeat.stalled_ms / 1000:.1f} s"
