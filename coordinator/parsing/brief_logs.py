"""Shortens errors that vLLM's parsers log: truncated model output is not an error of this service."""

import logging
from collections.abc import Iterable

log = logging.getLogger(__name__)


class _ShortErrors(logging.Filter):
    """Logs the first error of a kind as one warning, and later ones at DEBUG level."""

    def __init__(self) -> None:
        super().__init__()
        self._logged: set[tuple[str, type[BaseException]]] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        """Pass records without a traceback, and log one line in place of others."""
        kind, error, _ = record.exc_info or (None, None, None)
        if kind is None:
            return True
        first = (record.name, kind) not in self._logged
        self._logged.add((record.name, kind))
        level = logging.WARNING if first else logging.DEBUG
        log.log(level, "%s: %s (%s: %s)", record.name, record.getMessage(), kind.__name__, error)
        return False


_SHORT_ERRORS = _ShortErrors()


def shorten_errors(classes: Iterable[type]) -> None:
    """Shorten the errors that are logged by the modules of these classes and of their bases."""
    for module in {base.__module__ for cls in classes for base in cls.__mro__}:
        logging.getLogger(module).addFilter(_SHORT_ERRORS)
