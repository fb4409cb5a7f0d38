"""Workers listed in a file, one address per line."""

import asyncio
import logging
from pathlib import Path

from tokenwire.coordinator.fleet.discovery.source import Update, check_address
from tokenwire.errors import InvalidRequest

log = logging.getLogger(__name__)


class FileSource:
    """Polls a file, which detects every kind of change, also a swapped mount."""

    def __init__(self, path: Path, interval_s: float = 1.0) -> None:
        self._path = path
        self._interval_s = interval_s
        self._text: str | None = None
        self._failure = ""

    async def run(self, update: Update) -> None:
        """Call `update` when the file changes; while it cannot be read, the last addresses stay."""
        while True:
            try:
                text = await asyncio.to_thread(self._path.read_text, encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                self._log_failure(str(error))
            else:
                self._log_failure("")
                if text != self._text:
                    self._text = text
                    update(self._addresses(text))
            await asyncio.sleep(self._interval_s)

    def _addresses(self, text: str) -> list[str]:
        addresses = []
        for number, line in enumerate(text.splitlines(), 1):
            if address := line.partition("#")[0].strip():
                try:
                    addresses.append(check_address(address))
                except InvalidRequest as error:
                    log.warning("%s, line %d: %s", self._path, number, error.message)
        return addresses

    def _log_failure(self, failure: str) -> None:
        if failure and failure != self._failure:
            log.warning("cannot read workers from %s, keeping known ones: %s", self._path, failure)
        self._failure = failure
