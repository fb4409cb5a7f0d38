"""Keeps vLLM's parsers from filling the log: what a model did not write to its end is no fault of this service."""

import logging
from collections.abc import Iterable

log = logging.getLogger(__name__)


class _InBrief(logging.Filter):
    """Tells of the first error of a kind in one line, and of others to those who debug."""

    def __init__(self) -> None:
        super().__init__()
        self._told: set[tuple[str, type[BaseException]]] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        """Let pass what has no traceback, and write a line in place of the rest."""
        kind, error, _ = record.exc_info or (None, None, None)
        if kind is None:
            return True
        first = (record.name, kind) not in self._told
        self._told.add((record.name, kind))
        level = logging.WARNING if first else logging.DEBUG
        log.log(level, "%s: %s (%s: %s)", record.name, record.getMessage(), kind.__name__, error)
        return False


_IN_BRIEF = _InBrief()


def tell_in_brief(classes: Iterable[type]) -> None:
    """Shorten what the modules of these classes, and of those that they are made of, log of errors."""
    for module in {base.__module__ for cls in classes for base in cls.__mro__}:
        logging.getLogger(module).addFilter(_IN_BRIEF)
