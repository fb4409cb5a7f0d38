"""Which requests are poison when workers die."""

import pytest

from tests.clock import Clock
from tests.coordinator.fleet.failover.recording_policy import RecordingPolicy
from tests.workers import Listener
from tokenwire.coordinator.fleet.failover.poison_detection import PoisonDetector, is_undecided
from tokenwire.coordinator.fleet.failover.sequence import ResumableRequest, ResumableSequence
from tokenwire.coordinator.fleet.request_handle import NEW
from tokenwire.coordinator.fleet.submission import Submission


@pytest.fixture
def detector(time: Clock) -> PoisonDetector:
    """A detector without suspects."""
    return PoisonDetector(clock=time)


def sequence(tokens: int = 0, request: ResumableRequest | None = None) -> ResumableSequence:
    """Return a sequence that got a number of tokens from its worker."""
    made = ResumableSequence(request or ResumableRequest("m", Submission(), NEW), 0, Listener(), RecordingPolicy())
    made.step([1] * tokens, None)
    return made


def open_until_ended(request: ResumableRequest) -> bool:
    """Keep every isolated retry open."""
    return True


def test_after_the_first_death_no_request_is_suspect(detector: PoisonDetector) -> None:
    """All sequences are resumed."""
    lost = [sequence(), sequence(100)]
    assert detector.classify("a", lost).cleared == lost


def test_the_only_request_started_on_two_dead_workers_is_poison(detector: PoisonDetector) -> None:
    """Neighbours in mid-reply are not, nor those that only started on the second one."""
    poison, neighbour, moved = sequence(), sequence(100), sequence(100)
    detector.classify("a", [poison, moved])
    moved = sequence(1, moved.request)  # it has just begun at its second worker

    verdict = detector.classify("b", [poison, neighbour, moved])

    assert verdict.poison == [poison]
    assert verdict.cleared == [neighbour, moved]


@pytest.mark.parametrize(("tokens", "is_suspect"), [(4, True), (5, False)])
def test_a_request_is_suspect_for_its_first_four_tokens(
    detector: PoisonDetector, tokens: int, is_suspect: bool
) -> None:
    """At each of the two workers."""
    request = ResumableRequest("m", Submission(), NEW)
    detector.classify("a", [sequence(tokens, request)])
    assert bool(detector.classify("b", [sequence(tokens, request)]).poison) is is_suspect


def test_all_sequences_of_a_poison_request_are_stopped(detector: PoisonDetector) -> None:
    """A request is one suspect, however many choices it has."""
    request = ResumableRequest("m", Submission(), NEW)
    both = [sequence(request=request), sequence(request=request)]
    detector.classify("a", both)
    assert detector.classify("b", both).poison == both


def test_a_worker_lost_twice_died_once(detector: PoisonDetector) -> None:
    """The same process, lost again after its network recovered, is no second death."""
    suspect = sequence()
    detector.classify("a", [suspect])
    assert detector.classify("a", [suspect]).cleared == [suspect]


def test_deaths_far_apart_are_unrelated(detector: PoisonDetector, time: Clock) -> None:
    """After a minute the first one no longer counts."""
    suspect = sequence()
    detector.classify("a", [suspect])
    time.now += 61
    assert detector.classify("b", [suspect]).cleared == [suspect]


def test_several_suspects_are_retried_one_after_the_other(detector: PoisonDetector) -> None:
    """Tokens in its isolated retry clear a request; one that loses a third worker in it, alone, is poison."""
    first, second, third = sequence(), sequence(), sequence()
    detector.classify("a", [first, second, third])
    verdict = detector.classify("b", [first, second, third])
    assert not verdict.poison
    assert not verdict.cleared

    assert list(detector.next_isolated_retry(open_until_ended)) == [first]
    assert not detector.next_isolated_retry(open_until_ended)
    assert is_undecided(first)
    first.step([1] * 5, None)
    assert not is_undecided(first)

    assert list(detector.next_isolated_retry(lambda request: False)) == [second]
    assert detector.classify("c", [second]).poison == [second]
    assert list(detector.next_isolated_retry(open_until_ended)) == [third]
    assert not detector.next_isolated_retry(lambda request: False)
    assert not detector.retrying


def test_two_workers_that_served_nobody_else_are_no_proof(detector: PoisonDetector) -> None:
    """They may fail for everybody. Three are, or two more that had."""
    suspect, other = sequence(), sequence()
    detector.classify("a", [suspect, other], unproven_at="a:1")
    assert detector.classify("b", [suspect, other], unproven_at="b:1").cleared == [suspect, other]
    assert detector.classify("c", [suspect], unproven_at="c:1").poison == [suspect]
    assert detector.classify("d", [other]).poison == [other]


def test_a_worker_that_always_fails_is_one(detector: PoisonDetector) -> None:
    """However often it restarts, as long as it serves nobody."""
    suspect = sequence()
    for number in range(5):
        assert detector.classify(f"a{number}", [suspect], unproven_at="a:1").cleared == [suspect]
    assert detector.classify("b", [suspect], unproven_at="b:1").cleared == [suspect]


def test_one_that_failed_for_everybody_and_one_that_did_not_are_no_proof(detector: PoisonDetector) -> None:
    """Another one that had served a request is."""
    suspect = sequence()
    detector.classify("a", [suspect], unproven_at="a:1")
    assert detector.classify("b", [suspect]).cleared == [suspect]
    assert detector.classify("c", [suspect]).poison == [suspect]


def test_a_worker_that_served_nobody_says_nothing_about_an_isolated_retry(detector: PoisonDetector) -> None:
    """The request is sent to another one, still isolated."""
    one, two = sequence(), sequence()
    detector.classify("a", [one, two])
    detector.classify("b", [one, two])
    assert list(detector.next_isolated_retry(open_until_ended)) == [one]
    assert detector.classify("c", [one], unproven_at="c:1").cleared == [one]
    assert not detector.next_isolated_retry(open_until_ended)
    assert detector.classify("d", [one]).poison == [one]


class Processes:
    """Worker processes that run, ended, or are unknown."""

    def __init__(self) -> None:
        self.fates: dict[str, bool | None] = {}

    def __call__(self, instance_id: str) -> bool | None:
        """Return the state of one."""
        return self.fates.get(instance_id)


@pytest.fixture
def processes() -> Processes:
    """No process is known."""
    return Processes()


@pytest.fixture
def careful(processes: Processes, time: Clock) -> PoisonDetector:
    """A detector that checks the processes."""
    return PoisonDetector(processes, time)


@pytest.mark.parametrize("alive", ["a", "b"])
def test_a_cut_connection_is_no_death(careful: PoisonDetector, processes: Processes, alive: str) -> None:
    """The decision waits until the state of both workers is known; one that responds again clears the request."""
    suspects = [sequence(), sequence()]
    assert careful.classify("a", suspects).cleared == suspects

    at_once = careful.classify("b", suspects)
    assert (at_once.cleared, at_once.poison, careful.retrying) == ([], [], True)

    processes.fates[alive] = True
    assert careful.review().cleared == suspects
    assert not careful.retrying


def test_two_workers_known_to_be_dead_are_two_deaths(careful: PoisonDetector, processes: Processes) -> None:
    """As soon as the second one is known to be."""
    suspect = sequence()
    careful.classify("a", [suspect])
    careful.classify("b", [suspect])
    processes.fates["b"] = False
    assert careful.review().poison == []

    processes.fates["a"] = False

    assert careful.review().poison == [suspect]


def test_a_death_that_was_seen_stays_one(careful: PoisonDetector, processes: Processes) -> None:
    """The process may be forgotten before the second one dies."""
    suspect = sequence()
    processes.fates["a"] = False
    careful.classify("a", [suspect])
    processes.fates.update(a=None, b=False)

    assert careful.classify("b", [suspect]).poison == [suspect]


def test_a_worker_that_reported_its_death_is_certain(careful: PoisonDetector, processes: Processes) -> None:
    """Its connection may exist a moment longer, and the worker of a hanging engine may respond again."""
    suspect = sequence()
    processes.fates.update(a=True, b=False)
    careful.classify("a", [suspect], certain=True)
    careful.classify("b", [sequence()])
    processes.fates["b"] = True

    assert careful.classify("c", [suspect], certain=True).poison == [suspect]


def test_a_decision_times_out(careful: PoisonDetector, time: Clock) -> None:
    """Workers that do not return are taken for dead."""
    suspect = sequence()
    careful.classify("a", [suspect])
    careful.classify("b", [suspect])

    time.now += 31

    assert careful.review().poison == [suspect]


def test_an_ended_request_is_not_classified(careful: PoisonDetector, processes: Processes) -> None:
    """Its client disconnected."""
    suspect = sequence()
    request = suspect.request
    careful.classify("a", [suspect])
    careful.classify("b", [suspect])
    suspect.abort()
    careful.discard(request)
    processes.fates.update(a=False, b=False)

    verdict = careful.review()

    assert (verdict.cleared, verdict.poison, careful.retrying) == ([], [], False)


def test_a_cut_connection_in_an_isolated_retry_is_no_proof(careful: PoisonDetector, processes: Processes) -> None:
    """The isolated retry continues when the worker only lost its connection."""
    one, two = sequence(), sequence()
    processes.fates.update(a=False, b=False)
    careful.classify("a", [one, two])
    careful.classify("b", [one, two])
    tried = careful.next_isolated_retry(open_until_ended)

    processes.fates["c"] = None
    assert careful.classify("c", tried).poison == []
    processes.fates["c"] = True
    assert careful.review().cleared == tried
    processes.fates["d"] = False

    assert careful.classify("d", tried).poison == tried
