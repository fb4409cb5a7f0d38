"""By what a process knows that a stored session is still the one that it wrote to: others may drop it at any time."""

from collections import OrderedDict
from typing import Generic, TypeVar

from tokenwire.coordinator.trajectories.store import OnDropped, SessionKey

Mark = TypeVar("Mark")

_MOST_MARKS = 4096
"""More than there are indexes of sessions."""


class SessionMarks(Generic[Mark]):
    """The marks of the sessions written to last. Whose mark is forgotten may have been dropped: that is said."""

    def __init__(self, on_dropped: OnDropped, most: int = _MOST_MARKS) -> None:
        self._on_dropped = on_dropped
        self._most = most
        self._marks: OrderedDict[SessionKey, Mark] = OrderedDict()

    def find(self, key: SessionKey) -> Mark | None:
        """Return a session's mark, None if this process has not written to it, or has dropped it."""
        return self._marks.get(key)

    def put(self, key: SessionKey, mark: Mark) -> None:
        """Take the mark that a session has now, which it has been written to; another one than before says that it was
        dropped in between.
        """
        if self._marks.get(key, mark) != mark:
            self._on_dropped(key)
        self._marks[key] = mark
        self._marks.move_to_end(key)
        if len(self._marks) > self._most:
            self.drop(next(iter(self._marks)))

    def drop(self, key: SessionKey) -> None:
        """Say that a session was dropped."""
        self._marks.pop(key, None)
        self._on_dropped(key)
