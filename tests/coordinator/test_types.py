"""What passes between the parts of the coordinator."""

from dataclasses import replace

import pytest

from tests.coordinator.fakes import served_model
from tokenwire.coordinator.types import Usage


def test_a_models_defaults_are_vllms_where_it_has_none() -> None:
    """Its generation config overrides them; its stop tokens end every reply."""
    model = served_model(defaults={"temperature": 0.5, "stop_token_ids": [7]})

    assert (model.sampling_defaults.temperature, model.sampling_defaults.top_p) == (0.5, 1.0)
    assert list(model.stop_token_ids) == [7]
    assert list(served_model().stop_token_ids) == []


def test_workers_serve_a_model_by_its_first_name() -> None:
    """Adapters are served by the workers of their base model."""
    model = served_model()

    assert model.base_model == "digits"
    assert replace(model, names=("red",), base_model="digits").base_model == "digits"


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

    assert usage.as_dict() == counts | details
    assert usage.as_dict_with_details().keys() == counts.keys() | {"prompt_tokens_details", "completion_tokens_details"}


def test_full_usage_has_nulls_for_unknown_details() -> None:
    """As in vLLM."""
    assert Usage(1, 1).as_dict_with_details()["completion_tokens_details"] is None
    assert Usage(1, 1, cached_tokens=1).as_dict_with_details()["prompt_tokens_details"] == {
        "cached_tokens": 1,
        "created_cache_tokens": None,
        "multimodal_tokens": None,
    }
