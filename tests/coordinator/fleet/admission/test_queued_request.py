"""A queued request as it leaves the queue in parts."""

from tests.coordinator.fleet.admission.fakes import QueuedPart
from tests.workers import Listener
from tokenwire.coordinator.fleet.admission.queued_request import QueuedRequest
from tokenwire.coordinator.fleet.admission.shares import Shares, TenantShare
from tokenwire.coordinator.fleet.request_handle import Placement
from tokenwire.coordinator.fleet.submission import Submission


def queued_for(placement: Placement, n: int = 5) -> QueuedRequest:
    """Return a queued request."""
    share = Shares().of(placement.tenant, 1)
    return QueuedRequest("m", Submission("r", [1] * 10), [Listener() for _ in range(n)], placement, share)


def begin_part(entry: QueuedRequest, sequences: int) -> QueuedPart:
    """Send so many sequences."""
    part = QueuedPart(entry.submission, entry.listeners[:sequences])
    entry.begin(part)
    return part


def running_of(share: TenantShare) -> int:
    """Return how many sequences run that count for a tenant."""
    return sum(meter.restart() for meter in share.meters)


def test_what_is_left_counts() -> None:
    """Its sequences, its memory, and the work of what is sent next."""
    entry = queued_for(Placement(sequence_bytes=100))
    assert (entry.sequences, entry.size_bytes, entry.tokens(5)) == (5, 500, 10 + 5 * 256)

    begin_part(entry, 2)

    assert (entry.sequences, entry.size_bytes, entry.submission.start) == (3, 300, 2)


def test_only_a_new_request_may_be_refused() -> None:
    """Neither one that was resumed, nor a further prompt, nor one that was begun."""
    new = queued_for(Placement())
    others = [queued_for(Placement(resumed=True)), queued_for(Placement(joins=True))]
    assert [each.may_be_refused for each in (new, *others)] == [True, False, False]

    begin_part(new, 1)

    assert not new.may_be_refused


def test_each_worker_explains_itself_once() -> None:
    """However many parts it has."""
    entry = queued_for(Placement())
    first, second, _ = (begin_part(entry, 1) for _ in range(3))
    assert entry.explain() == "here, here, here"

    second.session = first.session

    assert entry.explain() == "here, here"


def test_one_sequence_is_aborted_by_its_listener() -> None:
    """Wherever it is, and whether its work is counted or not."""
    entry = queued_for(Placement(tenant="t"))
    listeners, share = list(entry.listeners), entry.share
    assert share is not None
    _, second = begin_part(entry, 2), begin_part(entry, 3)
    assert running_of(share) == 5

    entry.abort_one(listeners[3])

    assert (second.aborted_places, running_of(share)) == ([1], 4)


def test_a_sequence_that_is_aborted_counts_what_it_had() -> None:
    """At once, since it goes on elsewhere."""
    entry = queued_for(Placement(tenant="t"))
    listeners, share = list(entry.listeners), entry.share
    assert share is not None
    begin_part(entry, 5)
    before = share.tag

    entry.abort_one(listeners[3])

    assert share.tag == before - 256


def test_an_aborted_request_counts_no_longer() -> None:
    """All end so, whether anything is left to abort or not."""
    entry = queued_for(Placement(tenant="t"))
    assert entry.share is not None
    begin_part(entry, 5)

    entry.abort()

    assert (running_of(entry.share), entry.share.meters) == (0, {})
