"""A wall clock for other processes that can be set while they run; their monotonic clock is unaffected."""

from pathlib import Path

import libfaketime


class FakedClock:
    """The wall clock of all processes with its environment."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.set("+0")
        _, preloading = libfaketime.get_reload_information()
        self.environment: dict[str, str] = {**preloading, "FAKETIME_TIMESTAMP_FILE": str(file)}
        """What to start processes with."""

    def set(self, offset: str) -> None:
        """Set the time, `+1d` or `-90m` relative to the real time."""
        new = self._file.with_suffix(".new")
        new.write_text(offset)
        new.replace(self._file)
