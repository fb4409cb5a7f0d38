"""A time of day for other processes that can be set while they run; their monotonic clock goes on as it does."""

from pathlib import Path

import libfaketime


class FakedClock:
    """The time of day of all processes that have its environment."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.set("+0")
        _, preloading = libfaketime.get_reload_information()
        self.environment: dict[str, str] = {**preloading, "FAKETIME_TIMESTAMP_FILE": str(file)}
        """What to start processes with."""

    def set(self, offset: str) -> None:
        """Set the time of day, `+1d` or `-90m` from the true one."""
        new = self._file.with_suffix(".new")
        new.write_text(offset)
        new.replace(self._file)
