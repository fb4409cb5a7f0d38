"""Tools that were left out are reported."""

import logging

import pytest
from starlette.responses import Response

from tokenwire.coordinator.api.fields.left_out import HEADER, LeftOutTools


def test_each_response_names_them_and_the_log_does_once(caplog: pytest.LogCaptureFixture) -> None:
    """Each type once, however often it was offered; responses without such tools have no header."""
    left_out = LeftOutTools()
    with caplog.at_level(logging.WARNING):
        first = left_out.name_in(Response(), ["mcp", "web_search", "mcp"])
        again = left_out.name_in(Response(), ["mcp"])
        without = left_out.name_in(Response(), [])

    assert (first.headers[HEADER], again.headers[HEADER]) == ("mcp, web_search", "mcp")
    assert HEADER not in without.headers
    assert [record.args for record in caplog.records] == [('"mcp"',), ('"web_search"',)]
