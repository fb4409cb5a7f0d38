"""Invalid bodies are named."""

from typing import Any

import pytest
from pydantic import ValidationError

from tokenwire.coordinator.api.trajectories.bodies import NewSession, RewardBody
from tokenwire.errors import InvalidRequest


@pytest.mark.parametrize("value", [True, "1", None, float("nan"), float("inf")])
def test_a_reward_is_a_finite_number(value: Any) -> None:
    """And nothing that might be read as one."""
    with pytest.raises(ValidationError):
        RewardBody(value=value)


def test_a_reward_has_a_name() -> None:
    """`reward`, unless it is given another one, of some length."""
    assert RewardBody(value=1).name == "reward"
    for name in ("", "x" * 129):
        with pytest.raises(ValidationError):
            RewardBody(value=1, name=name)


@pytest.mark.parametrize(
    "fields",
    [
        {"session_id": "a/b"},
        {"session_id": ""},
        {"session_id": "a;max_weight_lag=1"},
        {"session_id": "a;max_weight_age=1"},
        {"session_id": ".."},
        {"metadata": {"a": "x" * 70_000}},
        {"min_weight_version": "steps/1"},
        {"min_weight_version": "1;max_weight_lag=9"},
        {"min_weight_version": "schritt_ä"},
        {"max_weight_lag": -1},
    ],
)
def test_a_session_is_small_and_fits_a_path(fields: dict[str, Any]) -> None:
    """The error names the field."""
    with pytest.raises(InvalidRequest) as raised:
        NewSession(**fields)
    assert raised.value.param in fields
