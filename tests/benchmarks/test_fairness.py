"""The orders that the queue is compared with serve whom they say."""

from benchmarks.fairness import FirstComeQueue, TurnsQueue
from benchmarks.shared_fleet import SentPart
from tests.workers import Listener
from tokenwire.coordinator.fleet.admission.fair_queue import FairQueue
from tokenwire.coordinator.fleet.admission.queued_request import QueuedRequest
from tokenwire.coordinator.fleet.request_handle import Placement
from tokenwire.coordinator.fleet.submission import Submission


def order_of(queue: FairQueue, tenants: str) -> str:
    """Return the order in which requests of tenants, named by a letter, are served."""
    for tenant in tenants:
        queue.add(QueuedRequest("m", Submission(), [Listener()], Placement(tenant=tenant)))
    order = ""
    while queue.requests:
        first = queue.heads()[0]
        queue.start(first, SentPart(None, first.listeners))
        queue.remove(first)
        order += first.placement.tenant
    return order


def test_who_comes_first_is_served_first() -> None:
    """Whoever it is."""
    assert order_of(FirstComeQueue(), "aaabac") == "aaabac"


def test_tenants_are_served_in_turns() -> None:
    """As long as they have requests."""
    assert order_of(TurnsQueue(lambda: 0.0), "aaaabbc") == "abcabaa"
