"""Invalid bodies and parameters are named."""

from typing import Any

import pytest
from pydantic import ValidationError
from starlette.datastructures import QueryParams

from tokenwire.coordinator.api.trajectories.bodies import NewSession, RewardBody, number_of, one_of, time_of
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


def test_parameters_are_checked() -> None:
    """By what they are."""
    query = QueryParams("limit=5&since=1.5&by=node")
    assert (number_of(query, "limit"), time_of(query, "since"), one_of(query, "by", ("path", "node"))) == (
        5,
        1.5,
        "node",
    )
    assert (number_of(query, "offset"), time_of(query, "until"), one_of(query, "format", ("jsonl",))) == (
        None,
        None,
        "jsonl",
    )
    for value in ("0", "-1", "1.5", "x", "9" * 20, "11"):
        with pytest.raises(InvalidRequest, match="`limit` must be a whole number from 1 on and at most 10"):
            number_of(QueryParams({"limit": value}), "limit", 10)
    for value in ("x", "nan", "inf"):
        with pytest.raises(InvalidRequest, match="`since`"):
            time_of(QueryParams({"since": value}), "since")
    with pytest.raises(InvalidRequest, match="`by` must be one of path, node"):
        one_of(QueryParams("by=tree"), "by", ("path", "node"))
