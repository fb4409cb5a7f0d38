"""Errors of vLLM's parsers are logged in one line, without a traceback per reply."""

import logging

import pytest

from tokenwire.coordinator.parsing.brief_logs import shorten_errors

log = logging.getLogger(__name__)


class Parser:
    """Logs as vLLM's parsers do."""

    def parse(self, text: str) -> None:
        """Fail and log it."""
        try:
            int(text)
        except ValueError:
            log.exception("Error in extracting tool call from response.")


class Child(Parser):
    """Inherits `parse`."""


def test_the_first_error_is_a_warning_and_later_ones_are_debug_records(caplog: pytest.LogCaptureFixture) -> None:
    """Whichever of the parser's classes logged it; other records are unchanged."""
    caplog.set_level(logging.DEBUG)
    shorten_errors([Child])
    shorten_errors([Child])

    Child().parse("x")
    Child().parse("y")
    log.error("plain")

    assert [record.levelname for record in caplog.records] == ["WARNING", "DEBUG", "ERROR"]
    assert caplog.records[0].getMessage().endswith("(ValueError: invalid literal for int() with base 10: 'x')")
    assert "Traceback" not in caplog.text
