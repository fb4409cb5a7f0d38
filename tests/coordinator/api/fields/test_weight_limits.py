"""Limits on the age of weights are read from bodies, extra arguments and headers; bad ones are named."""

from typing import Any

import pytest

from tokenwire.coordinator.api.api_request import RequestHeaders
from tokenwire.coordinator.api.fields.common import RequestFields
from tokenwire.coordinator.api.fields.weight_limits import named_limits
from tokenwire.errors import InvalidRequest
from tokenwire.protocol.weight_limits import WeightLimits


def test_a_body_goes_before_extra_arguments_and_headers() -> None:
    """Each limit is the first that is given: in the body, in vllm_xargs, in a header."""
    headers = RequestHeaders({"x-max-weight-lag": "1", "x-min-weight-version": "step_1"})
    body = RequestFields.model_validate({"vllm_xargs": {"max_weight_lag": 2, "min_weight_version": "step_2", "a": 1}})
    own = RequestFields.model_validate({"max_weight_lag": 3})

    assert headers.weights == WeightLimits("step_1", 1)
    assert body.weight_limits(headers.weights) == WeightLimits("step_2", 2)
    assert own.weight_limits(headers.weights) == WeightLimits("step_1", 3)
    assert RequestFields.model_validate({}).weight_limits(None) is None


def test_engines_do_not_get_them() -> None:
    """An engine knows nothing of them, and extra arguments would change how a reply is resumed."""
    body = RequestFields.model_validate({"vllm_xargs": {"max_weight_lag": 2}})

    assert not body.sampling(4).HasField("extra_args_json")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_weight_lag": -1}, "x.max_weight_lag"),
        ({"max_weight_lag": 2**31}, "x.max_weight_lag"),
        ({"max_weight_lag": [1]}, "x.max_weight_lag"),
        ({"min_weight_version": ""}, "x.min_weight_version"),
        ({"min_weight_version": 5}, "x.min_weight_version"),
        ({"min_weight_version": "a\nb"}, "x.min_weight_version"),
        ({"min_weight_version": "v" * 513}, "x.min_weight_version"),
    ],
)
def test_bad_limits_are_named(fields: dict[str, Any], param: str) -> None:
    """What is no number of versions or no label is rejected by its name."""
    with pytest.raises(InvalidRequest) as caught:
        named_limits(fields, "x.")
    assert caught.value.param == param
