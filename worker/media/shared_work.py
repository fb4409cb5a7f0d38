"""Work that several may wait for: it is done once for all of them, and not begun once all of them have left."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from typing import Any, Generic, TypeVar

WorkKeyT = TypeVar("WorkKeyT", bound=Hashable)
WorkResultT = TypeVar("WorkResultT")


class Shared(Generic[WorkResultT]):
    """One piece of work, and how many wait for it."""

    def __init__(self, work: "Callable[[Shared[WorkResultT]], Coroutine[Any, Any, WorkResultT]]") -> None:
        self.waiters = 0
        self.begun = False
        """Whether it has all that it needs, and goes on although nobody waits any more; the work sets it."""
        self.task = asyncio.create_task(work(self))


class SharedWork(Generic[WorkKeyT, WorkResultT]):
    """Pieces of work by key, from when they are needed until they end."""

    def __init__(self) -> None:
        self._pieces: dict[WorkKeyT, Shared[WorkResultT]] = {}

    def has_begun(self, key: WorkKeyT) -> bool:
        """Return whether there is work of this key that needs nothing more."""
        piece = self._pieces.get(key)
        return piece is not None and piece.begun

    async def result(
        self, key: WorkKeyT, work: Callable[[Shared[WorkResultT]], Coroutine[Any, Any, WorkResultT]]
    ) -> WorkResultT:
        """Return what the work of this key has made, or raise its error; `work` begins it if there is none."""
        piece = self._pieces.get(key)
        if piece is None:
            piece = self._pieces[key] = Shared(work)
            piece.task.add_done_callback(partial(self._end, key, piece))
        piece.waiters += 1
        try:
            return await asyncio.shield(piece.task)
        finally:
            piece.waiters -= 1
            if not piece.waiters and not piece.begun:
                self._forget(key, piece)  # who comes now does not get what is cancelled
                piece.task.cancel()

    def cancel(self) -> None:
        """End all."""
        for piece in self._pieces.values():
            piece.task.cancel()

    def _end(self, key: WorkKeyT, piece: Shared[WorkResultT], task: "asyncio.Task[WorkResultT]") -> None:
        self._forget(key, piece)
        if not task.cancelled():
            task.exception()  # or asyncio would log that of work that nobody waits for any more

    def _forget(self, key: WorkKeyT, piece: Shared[WorkResultT]) -> None:
        if self._pieces.get(key) is piece:
            del self._pieces[key]
