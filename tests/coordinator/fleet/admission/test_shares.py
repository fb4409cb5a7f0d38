"""What counts for the tenants of one priority, and when."""

import pytest

from benchmarks.share_ledger import ShareLedger
from tests.clock import Clock
from tests.coordinator.fleet.admission.fakes import QueuedPart
from tests.workers import Listener
from tokenwire.coordinator.fleet.admission.share_store import SharedTags, TenantReport
from tokenwire.coordinator.fleet.admission.shares import Shares, TenantShare, shared_name
from tokenwire.coordinator.fleet.admission.work_meter import WorkMeter
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.v1 import inference_pb2 as pb


def begun_by(share: TenantShare, tokens: int = 0, sequences: int = 1, prompt_tokens: int = 0) -> list[Listener]:
    """Start a request of a tenant, and return its sequences; whoever waits sees so much work."""
    listeners = [Listener() for _ in range(sequences)]
    if share.shares.waiting:
        share.start(tokens)
    share.meters[WorkMeter(QueuedPart(Submission(), listeners), listeners, prompt_tokens)] = None
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
    (sequence,) = begun_by(early, 256)
    sequence.step([1] * 1000, None)
    shares.read()
    early.start(10)
    ahead.start(2000)

    late.add()
    ahead.add()

    assert (late.tag, ahead.tag) == (1000, 3000)


def test_who_comes_is_not_behind_what_is_counted_in_advance() -> None:
    """The prompts of others may turn out to be cached, and their replies to be short."""
    shares = Shares()
    early, late = shares.of("early", 1), shares.of("late", 1)
    early.add()
    sequences = [begun_by(early, 10_256, prompt_tokens=10_000)[0] for _ in range(16)]

    late.add()
    for sequence in sequences:
        sequence.prefilled(pb.PrefillInfo(cached_tokens=10_000))
    shares.read()

    assert early.tag == pytest.approx(16 * 1256)
    assert late.tag == 0
    assert shares.is_behind("late", "early")


def serve_one(share: TenantShare, tokens: int) -> None:
    """Serve a request of a tenant, from its queueing to its end."""
    share.add()
    (sequence,) = begun_by(share, 256)
    share.remove()
    sequence.step([1] * tokens, pb.Finish(reason=pb.FINISH_REASON_STOP))
    share.shares.read()
    for meter in [*share.meters]:
        share.end(meter)


@pytest.mark.parametrize("by_store", [False, True])
def test_who_comes_again_waits_for_one_turn_and_not_for_all_that_are_new(by_store: bool) -> None:
    """Time goes on by what these have done, though each of them begins and ends with next to nothing."""
    shares, ledger = Shares(), ShareLedger(Clock(0.0))

    def exchange() -> None:
        if by_store:
            told = ledger.count("own", shares.report("any"))
            assert told is not None
            shares.adopt(told)

    shares.of("waits", 1).add()
    exchange()
    again = shares.of("again", 1)
    serve_one(again, 20)
    again.add()
    exchange()
    for number in range(50):
        serve_one(shares.of(f"new-{number}", 1), 20)
        exchange()

    late = shares.of("late", 1)
    late.add()
    exchange()

    assert again.tag == pytest.approx(20)
    assert late.tag > 50 * 20 / 4


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


def told_tags(tags: dict[str, float], virtual_time: float = 0.0) -> SharedTags:
    """Return what a store says of tenants, none of which waits elsewhere."""
    return SharedTags("period", virtual_time, {shared_name(tenant): tag for tenant, tag in tags.items()}, {})


def report_of(shares: Shares, tenant: str) -> TenantReport:
    """Return what is reported of a tenant."""
    return shares.report("any").tenants[shared_name(tenant)]


def test_who_begins_to_count_with_others_reports_what_it_has_running() -> None:
    """By weight, whatever it did before."""
    shares = Shares()
    heavy = shares.of("heavy", 2)
    (sequence, _) = begun_by(heavy, sequences=2)
    sequence.step([1] * 1000, None)
    shares.of("late", 1).add(sequences=3)

    assert report_of(shares, "heavy").in_advance == 2 * 256 / 2
    assert report_of(shares, "late") == TenantReport(0.0, 0.0, 3)


def test_work_is_reported_once() -> None:
    """And what is done while the store is asked counts beside its answer, until it is reported too."""
    shares = Shares()
    own = shares.of("own", 1)
    own.add()
    shares.report("any")
    shares.adopt(told_tags({"own": 500.0}))

    own.start(100)
    assert (report_of(shares, "own").work, own.tag) == (100, 600)
    own.start(10)
    shares.adopt(told_tags({"own": 900.0}))

    assert (own.tag, report_of(shares, "own").work, report_of(shares, "own").work) == (910, 10, 0)


def test_work_counts_while_somebody_waits_elsewhere() -> None:
    """Though nobody waits here."""
    shares = Shares()
    own = shares.of("own", 1)
    (sequence,) = begun_by(own)
    shares.adopt(told_tags({"own": 256.0}))
    sequence.step([1] * 257, None)

    assert report_of(shares, "own").work == 256
    for meter in [*own.meters]:
        sequence.step([1], pb.Finish(reason=pb.FINISH_REASON_STOP))
        own.end(meter)
    assert report_of(shares, "own").work == 258 - 512


def test_who_begins_to_wait_here_is_where_it_is_for_all() -> None:
    """What others have had elsewhere is not forgotten, and those of whom nothing is known are not before them."""
    shares = Shares()
    ahead, new = shares.of("ahead", 1), shares.of("new", 1)
    shares.adopt(told_tags({"ahead": 5000.0}, virtual_time=700.0))

    ahead.add()
    new.add()

    assert (ahead.tag, new.tag) == (5000, 700)


def test_a_report_has_those_that_wait_first() -> None:
    """It is bounded: of thousands that run something, the others are reported later."""
    shares = Shares()
    for number in range(300):
        share = shares.of(f"tenant-{number}", 1)
        begun_by(share)
    late = shares.of("late", 1)
    late.add()
    late.start(1000)

    report = shares.report("any")

    assert len(report.tenants) == 256
    assert report.tenants[shared_name("late")].waiting == 1


def test_queued_sequences_are_reported() -> None:
    """Of all requests of a tenant, without what has left the queue."""
    shares = Shares()
    share = shares.of("own", 1)
    share.add(sequences=5)
    share.add(sequences=2)
    share.remove(sequences=5)

    assert report_of(shares, "own").waiting == 2
