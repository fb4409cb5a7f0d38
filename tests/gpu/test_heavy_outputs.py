"""What counts as a valid reply of the step `heavy_outputs`."""

import json
from typing import Any

import pytest

from gpu.steps.heavy_outputs import CASES, fits_schema
from gpu.streams import StreamedReply

THING: dict[str, Any] = {
    "name": "lamp",
    "size": "small",
    "fresh": True,
    "tags": ["abcd", "efgh", "ijkl"],
    "address": {"street": "main"},
}


def test_a_thing_fits_its_schema() -> None:
    """With all its properties."""
    assert fits_schema(json.dumps(THING))


@pytest.mark.parametrize(
    "change",
    [{"name": "Lamp"}, {"size": "huge"}, {"fresh": 1}, {"tags": ["abcd"]}, {"address": {}}, {"more": 1}],
)
def test_other_values_do_not_fit(change: dict[str, Any]) -> None:
    """One that is wrong is enough."""
    assert not fits_schema(json.dumps(THING | change))


def test_cut_json_does_not_fit() -> None:
    """A reply that reached its length is not valid."""
    assert not fits_schema(json.dumps(THING)[:-3])


def test_each_token_has_its_log_probabilities() -> None:
    """The sampled token may be beside the top ones."""
    row: dict[str, Any] = {"top_logprobs": [{}] * 5}
    usage = {"completion_tokens": 2}
    is_valid = CASES["logprobs"].is_valid

    assert is_valid(StreamedReply(logprobs=[row, {"top_logprobs": [{}] * 6}], usage=usage))
    assert not is_valid(StreamedReply(logprobs=[row], usage=usage))
    assert not is_valid(StreamedReply(logprobs=[row, {"top_logprobs": []}], usage=usage))
