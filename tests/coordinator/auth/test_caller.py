"""What a request's key allows."""

import pytest

from tokenwire.coordinator.auth.caller import ANYBODY, Caller
from tokenwire.errors import Forbidden


def test_a_model_is_allowed_by_any_of_its_names() -> None:
    """The error has the first one; without a list every model is allowed."""
    caller = Caller(models=frozenset({"alias"}))

    caller.check_model("digits", "alias")
    ANYBODY.check_model("digits")
    with pytest.raises(Forbidden, match="`digits`") as rejected:
        caller.check_model("digits", "other")
    assert rejected.value.param == "model"


def test_a_caller_without_a_key_has_no_limits() -> None:
    """There is nobody to charge."""
    assert (ANYBODY.tenant, ANYBODY.min_priority, ANYBODY.account) == ("", None, None)
