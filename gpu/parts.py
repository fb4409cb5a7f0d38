"""Parts of a step: one that fails does not hide the others' results."""

import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpu.runner import FAILED, PARTS, PASSED, SKIPPED
from gpu.step import Skipped

_LAST_CHARACTERS = 2000


class Parts:
    """The results of a step's parts, in a file after each: so they are kept if the step is ended."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / PARTS
        self.results: dict[str, dict[str, Any]] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[dict[str, Any]]:
        """Run a part within a with block; yields a dictionary for its results. Whatever it raises becomes one."""
        started, status, reason = time.monotonic(), PASSED, ""
        found: dict[str, Any] = {}
        try:
            yield found
        except Skipped as skipped:
            status, reason = SKIPPED, str(skipped)
        except Exception as error:
            logging.exception("%s failed", name)
            status, reason = FAILED, f"{type(error).__name__}: {error}"[-_LAST_CHARACTERS:]
        self.results[name] = {"status": status, "reason": reason, "seconds": round(time.monotonic() - started, 2)}
        self.results[name] |= found
        logging.info("%s: %s", name, self.results[name])
        self._file.write_text(json.dumps(self.results, indent=1, default=str))


@contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Add the time of a with block to `seconds`."""
    started = time.monotonic()
    try:
        yield
    finally:
        seconds[name] = round(seconds.get(name, 0.0) + time.monotonic() - started, 3)
