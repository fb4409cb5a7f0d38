"""What is stored as JSON is read as it was."""

import json
from array import array
from typing import Any

import pytest

from tokenwire.coordinator.trajectories.stored_json import stored_json


@pytest.mark.parametrize(
    "value",
    [{"a": [1, 2.5, None, True], "ü": "\n"}, "\ud800", {"a": "half a pair \udc00", "b": {"c": []}}, [float("inf")], ""],
)
def test_values_are_read_as_they_were_stored(value: Any) -> None:
    """Also text that is no Unicode; in one line."""
    packed = stored_json(value)

    assert json.loads(packed) == value
    assert b"\n" not in packed


@pytest.mark.parametrize("text", ["", "\ud800"])
def test_sequences_are_stored_as_lists(text: str) -> None:
    """Whichever library writes them."""
    assert json.loads(stored_json([(1, 2), array("I", [3]), text])) == [[1, 2], [3], text]
