"""The duration of a simulated engine's steps, in real time."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from tokenwire.worker.simulated_engine.faults import Fault


class StepPacer:
    """Waits for the end of each step; a slow fault makes steps longer."""

    def __init__(
        self,
        step_s: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._step_s = step_s
        self._clock = clock
        self._sleep = sleep
        self._slow: Fault | None = None
        self._slow_until = 0
        self._deadline = 0.0

    def slow_down(self, fault: Fault, steps: int) -> None:
        """Apply a slow fault after a number of steps."""
        self._slow, self._slow_until = fault, steps + fault.steps

    def on_idle(self) -> None:
        """Restart the time of the next step: the engine has nothing to compute."""
        self._deadline = 0.0

    async def wait(self, steps: int) -> None:
        """Wait for the end of the step after that number of steps; time lost to a slow consumer is not caught up."""
        step_s = self._step_s
        if self._slow is not None and self._slow.steps and steps >= self._slow_until:
            self._slow = None
        if self._slow is not None:
            step_s = max(step_s, 0.001) * self._slow.factor
        now = self._clock()
        self._deadline = max((self._deadline or now) + step_s, now)
        await self._sleep(self._deadline - now)
