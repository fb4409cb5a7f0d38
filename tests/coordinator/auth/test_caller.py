"""What a request's key allows, and who a client without one is."""

import pytest

from tokenwire.coordinator.auth.caller import ANYBODY, Caller, caller_at
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


@pytest.mark.parametrize(
    ("host", "share"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("unknown", ""),
        ("_hidden", ""),
        ("", ""),
    ],
)
def test_clients_without_keys_are_told_apart_by_their_network(host: str, share: str) -> None:
    """Whoever has one IPv6 address has all of its network. They have one history, and no metrics of their own."""
    caller = caller_at(host)
    assert (caller.share, caller.tenant, caller.account) == (share, "", None)
