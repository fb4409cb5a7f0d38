"""What a request's key allows, and the timeout that it sets."""

import pytest

from tokenwire.coordinator.auth.caller import ANYBODY, TIMEOUT_HEADER, Caller, timeout_of
from tokenwire.errors import Forbidden, InvalidRequest


def test_a_model_is_allowed_by_any_of_its_names() -> None:
    """The error has the first one; without a list every model is allowed."""
    caller = Caller(models=frozenset({"alias"}))

    caller.check_model("digits", "alias")
    ANYBODY.check_model("digits")
    with pytest.raises(Forbidden, match="`digits`") as refused:
        caller.check_model("digits", "other")
    assert refused.value.param == "model"


def test_a_caller_without_a_key_is_charged_nothing() -> None:
    """There is nobody to charge."""
    ANYBODY.charge(5)
    assert (ANYBODY.tenant, ANYBODY.min_priority) == ("", None)


def test_a_timeout_is_a_positive_number_of_seconds() -> None:
    """Requests without one have the server's."""
    assert timeout_of({}) is None
    assert timeout_of({TIMEOUT_HEADER: b"2.5"}) == 2.5


@pytest.mark.parametrize("value", [b"", b"0", b"-1", b"inf", b"nan", b"soon", b"\xff"])
def test_other_timeouts_are_refused(value: bytes) -> None:
    """By the name of the header."""
    with pytest.raises(InvalidRequest) as refused:
        timeout_of({TIMEOUT_HEADER: value})
    assert refused.value.param == "X-Request-Timeout"
