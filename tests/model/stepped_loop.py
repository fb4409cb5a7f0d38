"""An event loop that runs what is ready and stops; timers wait until they are fired."""

import asyncio
import contextvars
import selectors
from collections.abc import Callable, Hashable
from concurrent.futures import Executor
from typing import TypeVar, TypeVarTuple, Unpack

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

TIMER = contextvars.ContextVar[Hashable]("TIMER", default=None)
"""The name under which timers of a context are held."""


class _IdleSelector(selectors.SelectSelector):
    """Calls `on_idle` instead of waiting."""

    on_idle: Callable[[], None]

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if timeout != 0 and not events:
            self.on_idle()
        return events


class SteppedLoop(asyncio.SelectorEventLoop):
    """No time passes in it, and threads are not used: what is given to one runs at once."""

    def __init__(self) -> None:
        selector = _IdleSelector()
        super().__init__(selector)
        selector.on_idle = self.stop
        self._held: dict[Hashable, tuple[asyncio.TimerHandle, Callable[[], object]]] = {}

    def settle(self) -> None:
        """Run until nothing is ready."""
        self.run_forever()

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Arguments]], object],
        *args: *Arguments,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Hold the callback under the name in TIMER."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._held[TIMER.get()] = handle, lambda: callback(*args)
        return handle

    def holds(self, name: Hashable) -> bool:
        """Return whether a timer of this name waits."""
        return name in self._held and not self._held[name][0].cancelled()

    def fire(self, name: Hashable) -> None:
        """Run a timer that waits, and what follows."""
        self.call_soon(self._held.pop(name)[1])
        self.settle()

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Arguments]], Result], *args: *Arguments
    ) -> "asyncio.Future[Result]":
        """Run the function at once."""
        future: asyncio.Future[Result] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def cancel_all(self) -> None:
        """End all tasks."""
        for task in asyncio.all_tasks(self):
            task.cancel()
        self.settle()

    def close(self) -> None:
        """Cancel what still runs, and close."""
        self.cancel_all()
        super().close()
