"""Who is to blame for workers that die."""

import pytest

from tests.clock import Clock
from tests.workers import Listener
from tokenwire.coordinator.fleet.failover.poison_detection import PoisonDetector, is_undecided
from tokenwire.coordinator.fleet.failover.sequence import Loss, ResumableRequest, ResumableSequence
from tokenwire.coordinator.fleet.request_handle import NEW
from tokenwire.v1 import inference_pb2 as pb


class FailoverPolicy:
    """Keeps nothing."""

    def on_lost(self, sequence: ResumableSequence, loss: Loss) -> None:
        """Take no note."""

    def on_diverged(self, sequence: ResumableSequence, position: int) -> None:
        """Take no note."""

    def on_ended(self, sequence: ResumableSequence) -> None:
        """Take no note."""


@pytest.fixture
def time() -> Clock:
    """The time."""
    return Clock()


@pytest.fixture
def detector(time: Clock) -> PoisonDetector:
    """No request is suspect."""
    return PoisonDetector(clock=time)


def sequence(tokens: int = 0, request: ResumableRequest | None = None) -> ResumableSequence:
    """Return a sequence that got so many tokens from its worker."""
    made = ResumableSequence(request or ResumableRequest("m", pb.Submit(), NEW), 0, Listener(), FailoverPolicy())
    made.step([1] * tokens, None)
    return made


def open_until_ended(request: ResumableRequest) -> bool:
    """Keep every isolated retry open."""
    return True


def test_the_first_death_blames_nobody(detector: PoisonDetector) -> None:
    """All sequences are resumed."""
    lost = [sequence(), sequence(100)]
    assert detector.classify("a", lost).cleared == lost


def test_the_only_one_that_began_on_two_dead_workers_is_guilty(detector: PoisonDetector) -> None:
    """Neighbours in mid-reply are not, nor those that only began on the second one."""
    poison, neighbour, moved = sequence(), sequence(100), sequence(100)
    detector.classify("a", [poison, moved])
    moved = sequence(1, moved.request)  # it has just begun at its second worker

    verdict = detector.classify("b", [poison, neighbour, moved])

    assert verdict.poisoned == [poison]
    assert verdict.cleared == [neighbour, moved]


def test_all_sequences_of_a_guilty_request_are_stopped(detector: PoisonDetector) -> None:
    """A request is one suspect, however many choices it has."""
    request = ResumableRequest("m", pb.Submit(), NEW)
    both = [sequence(request=request), sequence(request=request)]
    detector.classify("a", both)
    assert detector.classify("b", both).poisoned == both


def test_a_worker_that_dies_twice_for_a_coordinator_is_one(detector: PoisonDetector) -> None:
    """The same process, lost again after its network came back, is no second death."""
    suspect = sequence()
    detector.classify("a", [suspect])
    assert detector.classify("a", [suspect]).cleared == [suspect]


def test_deaths_far_apart_have_nothing_in_common(detector: PoisonDetector, time: Clock) -> None:
    """After a minute the first one is forgiven."""
    suspect = sequence()
    detector.classify("a", [suspect])
    time.now += 61
    assert detector.classify("b", [suspect]).cleared == [suspect]


def test_several_suspects_are_tried_one_after_the_other(detector: PoisonDetector) -> None:
    """Tokens in its isolated retry clear a request; one that loses a third worker in it, alone, is poison."""
    first, second, third = sequence(), sequence(), sequence()
    detector.classify("a", [first, second, third])
    verdict = detector.classify("b", [first, second, third])
    assert not verdict.poisoned
    assert not verdict.cleared

    assert list(detector.next_isolated_retry(open_until_ended)) == [first]
    assert not detector.next_isolated_retry(open_until_ended)
    assert is_undecided(first)
    first.step([1] * 5, None)
    assert not is_undecided(first)

    assert list(detector.next_isolated_retry(lambda request: False)) == [second]
    assert detector.classify("c", [second]).poisoned == [second]
    assert list(detector.next_isolated_retry(open_until_ended)) == [third]
    assert not detector.next_isolated_retry(lambda request: False)
    assert not detector.retrying


class Processes:
    """Worker processes, of which it is known or not yet known whether they run."""

    def __init__(self) -> None:
        self.fates: dict[str, bool | None] = {}

    def __call__(self, instance_id: str) -> bool | None:
        """Tell what is known of one."""
        return self.fates.get(instance_id)


@pytest.fixture
def processes() -> Processes:
    """Nothing is known of any."""
    return Processes()


@pytest.fixture
def careful(processes: Processes, time: Clock) -> PoisonDetector:
    """Somebody who asks for the processes."""
    return PoisonDetector(processes, time)


@pytest.mark.parametrize("alive", ["a", "b"])
def test_a_connection_that_was_cut_is_no_death(careful: PoisonDetector, processes: Processes, alive: str) -> None:
    """The verdict waits until it is known what became of both workers; one that answers again forgives."""
    suspect = sequence()
    assert careful.classify("a", [suspect]).cleared == [suspect]

    at_once = careful.classify("b", [suspect])
    assert (at_once.cleared, at_once.poisoned, careful.retrying) == ([], [], True)

    processes.fates[alive] = True
    assert careful.review().cleared == [suspect]
    assert not careful.retrying


def test_two_workers_that_are_known_to_be_dead_make_guilty(careful: PoisonDetector, processes: Processes) -> None:
    """As soon as the last one of them is."""
    suspect = sequence()
    careful.classify("a", [suspect])
    careful.classify("b", [suspect])
    processes.fates["b"] = False
    assert careful.review().poisoned == []

    processes.fates["a"] = False

    assert careful.review().poisoned == [suspect]


def test_a_worker_that_said_that_it_dies_is_not_asked_for(careful: PoisonDetector, processes: Processes) -> None:
    """Its connection may be there for a moment longer, and a hanging engine's worker may well answer again."""
    suspect = sequence()
    processes.fates.update(a=True, b=False)
    careful.classify("a", [suspect], certain=True)
    careful.classify("b", [sequence()])
    processes.fates["b"] = True

    assert careful.classify("c", [suspect], certain=True).poisoned == [suspect]


def test_a_verdict_does_not_wait_for_ever(careful: PoisonDetector, time: Clock) -> None:
    """Workers that stay away are taken for dead."""
    suspect = sequence()
    careful.classify("a", [suspect])
    careful.classify("b", [suspect])

    time.now += 31

    assert careful.review().poisoned == [suspect]


def test_whoever_ended_meanwhile_is_not_judged(careful: PoisonDetector, processes: Processes) -> None:
    """Its client left."""
    suspect = sequence()
    careful.classify("a", [suspect])
    careful.classify("b", [suspect])
    suspect.abort()
    careful.forget(suspect.request)
    processes.fates.update(a=False, b=False)

    verdict = careful.review()

    assert (verdict.cleared, verdict.poisoned, careful.retrying) == ([], [], False)


def test_a_cut_on_trial_is_no_proof(careful: PoisonDetector, processes: Processes) -> None:
    """An isolated retry goes on when the worker only lost its connection."""
    one, two = sequence(), sequence()
    processes.fates.update(a=False, b=False)
    careful.classify("a", [one, two])
    careful.classify("b", [one, two])
    tried = careful.next_isolated_retry(open_until_ended)

    processes.fates["c"] = None
    assert careful.classify("c", tried).poisoned == []
    processes.fates["c"] = True
    assert careful.review().cleared == tried
    processes.fates["d"] = False

    assert careful.classify("d", tried).poisoned == tried
