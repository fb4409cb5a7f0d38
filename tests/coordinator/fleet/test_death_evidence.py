"""When the death of a worker is evidence against the requests that it had just started."""

import pytest

from tests.clock import Clock
from tokenwire.coordinator.fleet.death_evidence import LEAST_SERVED, DeathEvidence
from tokenwire.coordinator.fleet.submission import Submission


@pytest.fixture
def evidence(time: Clock) -> DeathEvidence:
    """That of a worker that has served enough."""
    evidence = DeathEvidence(time)
    connect_and_serve(evidence)
    return evidence


def connect_and_serve(evidence: DeathEvidence, requests: int = LEAST_SERVED) -> None:
    """Connect, and serve some requests."""
    evidence.on_connected()
    for _ in range(requests):
        evidence.on_served()


def short_request(name: str, prompt: int) -> Submission:
    """Return a request."""
    return Submission(request_id=name, prompt_token_ids=[prompt])


def test_a_worker_has_to_serve_some_requests(evidence: DeathEvidence) -> None:
    """A single one may be a trick; after each loss it begins anew."""
    assert evidence.counts
    connect_and_serve(evidence, LEAST_SERVED - 1)
    assert not evidence.counts
    evidence.on_served()
    assert evidence.counts


def test_a_worker_that_is_lost_with_another_request_each_time_fails_for_all(evidence: DeathEvidence) -> None:
    """However many it serves in between."""
    evidence.on_lost([short_request("a", 1), short_request("b", 2)])
    assert evidence.counts

    connect_and_serve(evidence)
    evidence.on_lost([short_request("c", 3)])

    assert not evidence.counts


@pytest.mark.parametrize(
    "again", [short_request("a", 7), short_request("retried", 1)], ids=["with tokens", "by its client"]
)
def test_a_worker_that_is_lost_with_the_same_request_again_is_evidence(
    evidence: DeathEvidence, again: Submission
) -> None:
    """Among others: it is what the losses have in common."""
    evidence.on_lost([short_request("a", 1), short_request("b", 2)])
    connect_and_serve(evidence)
    evidence.on_lost([short_request("c", 3), again])
    assert evidence.counts


def test_losses_are_forgotten(evidence: DeathEvidence, time: Clock) -> None:
    """After ten minutes; those of a worker that had started nothing never matter."""
    evidence.on_lost([short_request("a", 1)])
    connect_and_serve(evidence)
    time.now += 600
    evidence.on_lost([])
    evidence.on_lost([short_request("b", 2)])
    assert evidence.counts
