"""Errors in the formats of routes."""

import pytest

from tokenwire.coordinator.api.errors import anthropic_error


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (404, "not_found_error"),
        (405, "invalid_request_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (501, "api_error"),
        (503, "overloaded_error"),
    ],
)
def test_error_types_depend_on_the_status(status: int, kind: str) -> None:
    """Anthropic's clients decide by the type whether to retry."""
    assert anthropic_error("m", "x", status)["error"]["type"] == kind
