"""Identifiers from clients are bounded."""

import pytest

from tests.coordinator.api.fields.requests import request_fields
from tokenwire.coordinator.api.api_request import Headers
from tokenwire.errors import InvalidRequest


@pytest.mark.parametrize("name", ["request_id", "session_id"])
@pytest.mark.parametrize("value", ["x" * 513, "a\nb", "\x00", "a\x85b", "\x9b2J", "\u2028", "a\u2029"])
def test_identifiers_from_clients_are_bounded(name: str, value: str) -> None:
    """Every chunk and choice repeats them, and logs contain them; in headers as in bodies."""
    with pytest.raises(InvalidRequest) as in_body:
        request_fields(**{name: value})
    header = f"x-{name.replace('_', '-')}"
    with pytest.raises(InvalidRequest) as in_header:
        Headers({header: value})

    assert in_body.value.param == name
    assert (in_header.value.param or "").lower() == header
    assert request_fields(**{name: "x" * 512}).model_fields_set == {name}
