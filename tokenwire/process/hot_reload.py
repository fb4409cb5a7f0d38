"""Values read from files and reloaded when they change, so that rotation needs no restart."""

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
    """A value that is reloaded when its files change. Invalid files leave it unchanged, and are logged once."""

    def __init__(self, files: Sequence[Path], read: Callable[[], Value]) -> None:
        """Read the files. Raises what `read` raises, InvalidRequest."""
        self._files = files
        self._read = read
        # gRPC's threads call this during handshakes.
        self._lock = threading.Lock()
        self._stamps = self._stat_files()
        self._value = read()

    def current(self) -> Value:
        """Return the value, reloaded if a file has changed."""
        with self._lock:
            stamps = self._stat_files()
            if stamps != self._stamps:
                self._stamps = stamps
                names = ", ".join(str(file) for file in self._files)
                try:
                    self._value = self._read()
                    log.info("reloaded %s", names)
                except InvalidRequest as error:
                    log.error("cannot reload %s, keeping the previous contents: %s", names, error.message)
            return self._value

    def _stat_files(self) -> list[Stamp | None]:
        return [_stamp(file) for file in self._files]


def _stamp(file: Path) -> Stamp | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
