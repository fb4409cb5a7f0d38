"""Blocking work beside the event loop, in a thread that never holds up the end of the process."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class Background(Generic[T]):
    """Runs a function in a daemon thread at once; a result that nobody waits for any more goes to `discard`."""

    def __init__(self, function: Callable[[], T], discard: Callable[[T], None] | None = None) -> None:
        self._function = function
        self._discard = discard
        self._future: Future[T] = Future()
        self._thread = threading.Thread(target=self._run, name="tokenwire-vllm", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Tell whether the function still runs, waited for or not."""
        return self._thread.is_alive()

    async def outcome(self) -> T:
        """Wait for the function to return or raise."""
        return await asyncio.wrap_future(self._future)

    def _run(self) -> None:
        try:
            result = self._function()
        except BaseException as error:
            if self._future.set_running_or_notify_cancel():
                self._future.set_exception(error)
            return
        if self._future.set_running_or_notify_cancel():
            self._future.set_result(result)
        elif self._discard is not None:
            self._discard(result)
