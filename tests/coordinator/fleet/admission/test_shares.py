"""What counts for the tenants of one priority, and when."""

import pytest

from tokenwire.coordinator.fleet.admission.shares import Shares


def test_what_runs_counts_by_weight_when_others_begin_to_wait() -> None:
    """Whatever its tenant did before."""
    shares = Shares()
    heavy, light = shares.of("heavy", 2), shares.of("light", 1)
    for share in (heavy, light):
        for _ in range(3):
            share.start(5000)
            share.begin_sequence()
    light.end_sequence()

    shares.of("late", 1).add()

    assert [shares.tag(tenant) for tenant in ("heavy", "light", "late")] == [3 * 256 / 2, 2 * 256, 0]


def test_who_begins_to_wait_later_does_not_catch_up() -> None:
    """It begins where the others are, or where it is if that is further."""
    shares = Shares()
    early, late, ahead = (shares.of(tenant, 1) for tenant in ("early", "late", "ahead"))
    early.add()
    early.start(1000)
    early.start(10)
    ahead.start(2000)

    late.add()
    ahead.add()

    assert (late.tag, ahead.tag) == (1000, 3000)


def test_shares_are_in_use_while_somebody_waits_or_runs() -> None:
    """Then they may be forgotten."""
    shares = Shares()
    share = shares.of("any", 1)
    assert not shares
    share.add()
    share.begin_sequence()
    share.remove()
    assert shares

    share.end_sequence()

    assert not shares


def test_a_request_leaves_the_queue_once() -> None:
    """Else its tenant would owe others places."""
    share = Shares().of("any", 1)
    share.add()
    share.remove()

    with pytest.raises(AssertionError, match="twice"):
        share.remove()


def test_nobody_is_behind_a_tenant_with_as_much() -> None:
    """Only who has had less may take places back."""
    shares = Shares()
    waiting, other = shares.of("waiting", 1), shares.of("other", 1)
    waiting.add()
    other.start(100)
    assert shares.is_behind("waiting", "other")

    waiting.charge(100)

    assert not shares.is_behind("waiting", "other")


def test_a_tenant_that_runs_something_is_remembered() -> None:
    """Thousands of others come and go meanwhile, and nobody waits."""
    shares = Shares()
    busy = shares.of("busy", 1)
    busy.begin_sequence()

    for number in range(3000):
        shares.of(f"tenant-{number}", 1)

    assert shares.of("busy", 1) is busy
