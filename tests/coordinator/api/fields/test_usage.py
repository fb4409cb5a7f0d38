"""OpenAI's usage object."""

import pytest

from tokenwire.coordinator.api.fields.usage import full_usage_object, usage_object
from tokenwire.coordinator.types import Usage


@pytest.mark.parametrize(
    ("usage", "details"),
    [
        (Usage(2, 3), {}),
        (Usage(2, 3, cached_tokens=1), {"prompt_tokens_details": {"cached_tokens": 1}}),
        (
            Usage(2, 3, cached_tokens=0, created_cache_tokens=2),
            {"prompt_tokens_details": {"cached_tokens": 0, "created_cache_tokens": 2}},
        ),
        (Usage(2, 3, reasoning_tokens=1), {"completion_tokens_details": {"reasoning_tokens": 1}}),
    ],
)
def test_usage_has_the_details_that_are_known(usage: Usage, details: dict[str, dict[str, int]]) -> None:
    """In streams; full responses have all of vLLM's fields, null if unknown."""
    counts = {"prompt_tokens": 2, "total_tokens": 5, "completion_tokens": 3}

    assert usage_object(usage) == counts | details
    assert full_usage_object(usage).keys() == counts.keys() | {"prompt_tokens_details", "completion_tokens_details"}


def test_full_usage_has_nulls_for_unknown_details() -> None:
    """As in vLLM."""
    assert full_usage_object(Usage(1, 1))["completion_tokens_details"] is None
    assert full_usage_object(Usage(1, 1, cached_tokens=1))["prompt_tokens_details"] == {
        "cached_tokens": 1,
        "created_cache_tokens": None,
        "multimodal_tokens": None,
    }
