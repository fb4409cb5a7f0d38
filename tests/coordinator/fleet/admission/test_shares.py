"""What counts for the tenants of one priority, and when."""

import pytest

from tests.coordinator.fleet.admission.fakes import QueuedPart
from tests.workers import Listener
from tokenwire.coordinator.fleet.admission.shares import Shares, TenantShare
from tokenwire.coordinator.fleet.admission.work_meter import WorkMeter
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.v1 import inference_pb2 as pb


def begun_by(share: TenantShare, tokens: int = 0, sequences: int = 1) -> list[Listener]:
    """Start a request of a tenant, and return its sequences; whoever waits sees so much work."""
    listeners = [Listener() for _ in range(sequences)]
    if share.shares.waiting:
        share.start(tokens)
    share.meters[WorkMeter(QueuedPart(Submission(), listeners), listeners, True)] = None
    return listeners


def test_what_runs_counts_by_weight_when_others_begin_to_wait() -> None:
    """Whatever its tenant did before."""
    shares = Shares()
    heavy, light = shares.of("heavy", 2), shares.of("light", 1)
    for share in (heavy, light):
        begun_by(share, sequences=2)
    one, _ = begun_by(heavy, 5000), (ended := begun_by(light)[0])
    one[0].step([1] * 1000, None)
    ended.step([1], pb.Finish(reason=pb.FINISH_REASON_STOP))

    late = shares.of("late", 1)
    late.add()

    assert [share.tag for share in (heavy, light, late)] == [3 * 256 / 2, 2 * 256, 0]


def test_work_counts_once_it_is_read() -> None:
    """By weight, for the tenant that did it."""
    shares = Shares()
    heavy, late = shares.of("heavy", 2), shares.of("late", 1)
    (sequence,) = begun_by(heavy)
    late.add()
    sequence.step([1] * 257, None)
    assert heavy.tag == 256 / 2

    shares.read()

    assert (heavy.tag, late.tag) == (2 * 256 / 2, 0)


def test_who_begins_to_wait_has_its_work_read() -> None:
    """Else it would go before others that have done as much."""
    shares = Shares()
    early, late = shares.of("early", 1), shares.of("late", 1)
    early.add()
    (sequence,) = begun_by(late, 256)
    sequence.step([1] * 1000, None)

    late.add()

    assert late.tag == 4 * 256


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
    begun_by(share)
    share.remove()
    assert shares

    for meter in [*share.meters]:
        share.end(meter)

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

    waiting.start(100)

    assert not shares.is_behind("waiting", "other")


def test_a_tenant_that_runs_something_is_remembered() -> None:
    """Thousands of others come and go meanwhile, and nobody waits."""
    shares = Shares()
    busy = shares.of("busy", 1)
    begun_by(busy)

    for number in range(3000):
        shares.of(f"tenant-{number}", 1)

    assert shares.of("busy", 1) is busy
