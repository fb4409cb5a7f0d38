"""Values made from files, and made anew when the files change: what rotates needs no restart."""

import logging
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from tokenwire.errors import InvalidRequest

log = logging.getLogger(__name__)

Value = TypeVar("Value")
Stamp = tuple[int, int, int]


class Reloading(Generic[Value]):
    """A value that follows its files. Files that are wrong leave it as it is, and are named once in the log."""

    def __init__(self, files: Sequence[Path], read: Callable[[], Value]) -> None:
        """Read for the first time. Raises what `read` raises, InvalidRequest."""
        self._files = files
        self._read = read
        # Handshakes ask from threads of gRPC's.
        self._lock = threading.Lock()
        self._stamps = self._look()
        self._value = read()

    def current(self) -> Value:
        """Return the value, made anew if a file has changed since."""
        with self._lock:
            stamps = self._look()
            if stamps != self._stamps:
                self._stamps = stamps
                names = ", ".join(str(file) for file in self._files)
                try:
                    self._value = self._read()
                    log.info("took up what changed in %s", names)
                except InvalidRequest as error:
                    log.error("going on with what %s held before: %s", names, error.message)
            return self._value

    def _look(self) -> list[Stamp | None]:
        return [_stamp(file) for file in self._files]


def _stamp(file: Path) -> Stamp | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
