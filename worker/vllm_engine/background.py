"""Runs blocking work in a daemon thread, which never delays the exit of the process."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class Background(Generic[T]):
    """Runs a function in a daemon thread; a result whose waiter was cancelled is passed to `discard`."""

    def __init__(self, function: Callable[[], T], discard: Callable[[T], None] | None = None) -> None:
        self._function = function
        self._discard = discard
        self._future: Future[T] = Future()
        self._thread = threading.Thread(target=self._run, name="tokenwire-vllm", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Return whether the function is still running."""
        return self._thread.is_alive()

    async def result(self) -> T:
        """Wait for the function's result, or raise its exception."""
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
