"""Errors of vLLM's parsers are a line in the log, not a traceback for each reply."""

import logging

import pytest

from tokenwire.coordinator.parsing.brief_logs import tell_in_brief

log = logging.getLogger(__name__)


class Parser:
    """Logs as vLLM's parsers do."""

    def parse(self, text: str) -> None:
        """Fail, and say so."""
        try:
            int(text)
        except ValueError:
            log.exception("Error in extracting tool call from response.")


class Child(Parser):
    """Inherits it."""


def test_an_error_is_told_in_a_line_and_its_like_only_to_those_who_debug(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever of the parser's classes logged it; other lines stay as they are."""
    caplog.set_level(logging.DEBUG)
    tell_in_brief([Child])
    tell_in_brief([Child])

    Child().parse("x")
    Child().parse("y")
    log.error("plain")

    assert [record.levelname for record in caplog.records] == ["WARNING", "DEBUG", "ERROR"]
    assert caplog.records[0].getMessage().endswith("(ValueError: invalid literal for int() with base 10: 'x')")
    assert "Traceback" not in caplog.text
