"""Who is to blame for workers that die."""

import pytest

from tests.clock import Clock
from tests.workers import Listener
from tokenwire.coordinator.fleet.failover.poison_detection import Suspicion, is_undecided
from tokenwire.coordinator.fleet.failover.sequence import Loss, ResumableSequence


class Keeper:
    """Keeps nothing."""

    def lost(self, sequence: ResumableSequence, loss: Loss) -> None:
        """Take no note."""

    def diverged(self, sequence: ResumableSequence, position: int) -> None:
        """Take no note."""

    def ended(self, sequence: ResumableSequence) -> None:
        """Take no note."""


@pytest.fixture
def time() -> Clock:
    """The time."""
    return Clock()


@pytest.fixture
def suspicion(time: Clock) -> Suspicion:
    """Nobody is suspect."""
    return Suspicion(clock=time)


def sequence(tokens: int = 0, request: object | None = None) -> ResumableSequence:
    """Return a sequence that got so many tokens from its worker."""
    made = ResumableSequence(request or object(), 0, Listener(), Keeper())
    made.step([1] * tokens, None)
    return made


def open_until_ended(request: object) -> bool:
    """Keep every trial open."""
    return True


def test_the_first_death_blames_nobody(suspicion: Suspicion) -> None:
    """Whoever was there goes on."""
    lost = [sequence(), sequence(100)]
    assert suspicion.judge("a", lost).innocent == lost


def test_the_only_one_that_began_on_two_dead_workers_is_guilty(suspicion: Suspicion) -> None:
    """Neighbours in mid-reply are not, nor those that only began on the second one."""
    poison, neighbour, moved = sequence(), sequence(100), sequence(100)
    suspicion.judge("a", [poison, moved])
    moved = sequence(1, moved.request)  # it has just begun at its second worker

    verdict = suspicion.judge("b", [poison, neighbour, moved])

    assert verdict.guilty == [poison]
    assert verdict.innocent == [neighbour, moved]


def test_all_sequences_of_a_guilty_request_are_stopped(suspicion: Suspicion) -> None:
    """A request is one suspect, however many choices it has."""
    request = object()
    both = [sequence(request=request), sequence(request=request)]
    suspicion.judge("a", both)
    assert suspicion.judge("b", both).guilty == both


def test_a_worker_that_dies_twice_for_a_coordinator_is_one(suspicion: Suspicion) -> None:
    """The same process, lost again after its network came back, is no second death."""
    suspect = sequence()
    suspicion.judge("a", [suspect])
    assert suspicion.judge("a", [suspect]).innocent == [suspect]


def test_deaths_far_apart_have_nothing_in_common(suspicion: Suspicion, time: Clock) -> None:
    """After a minute the first one is forgiven."""
    suspect = sequence()
    suspicion.judge("a", [suspect])
    time.now += 61
    assert suspicion.judge("b", [suspect]).innocent == [suspect]


def test_several_suspects_are_tried_one_after_the_other(suspicion: Suspicion) -> None:
    """Who makes tokens on its trial is free; who loses a third worker on it is guilty, alone."""
    first, second, third = sequence(), sequence(), sequence()
    suspicion.judge("a", [first, second, third])
    verdict = suspicion.judge("b", [first, second, third])
    assert not verdict.guilty
    assert not verdict.innocent

    assert list(suspicion.next_trial(open_until_ended)) == [first]
    assert not suspicion.next_trial(open_until_ended)
    assert is_undecided(first)
    first.step([1] * 5, None)
    assert not is_undecided(first)

    assert list(suspicion.next_trial(lambda request: False)) == [second]
    assert suspicion.judge("c", [second]).guilty == [second]
    assert list(suspicion.next_trial(open_until_ended)) == [third]
    assert not suspicion.next_trial(lambda request: False)
    assert not suspicion.trying


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
def careful(processes: Processes, time: Clock) -> Suspicion:
    """Somebody who asks for the processes."""
    return Suspicion(processes, time)


@pytest.mark.parametrize("alive", ["a", "b"])
def test_a_connection_that_was_cut_is_no_death(careful: Suspicion, processes: Processes, alive: str) -> None:
    """The verdict waits until it is known what became of both workers; one that answers again forgives."""
    suspect = sequence()
    assert careful.judge("a", [suspect]).innocent == [suspect]

    at_once = careful.judge("b", [suspect])
    assert (at_once.innocent, at_once.guilty, careful.trying) == ([], [], True)

    processes.fates[alive] = True
    assert careful.review().innocent == [suspect]
    assert not careful.trying


def test_two_workers_that_are_known_to_be_dead_make_guilty(careful: Suspicion, processes: Processes) -> None:
    """As soon as the last one of them is."""
    suspect = sequence()
    careful.judge("a", [suspect])
    careful.judge("b", [suspect])
    processes.fates["b"] = False
    assert careful.review().guilty == []

    processes.fates["a"] = False

    assert careful.review().guilty == [suspect]


def test_a_worker_that_said_that_it_dies_is_not_asked_for(careful: Suspicion, processes: Processes) -> None:
    """Its connection may be there for a moment longer, and a hanging engine's worker may well answer again."""
    suspect = sequence()
    processes.fates.update(a=True, b=False)
    careful.judge("a", [suspect], certain=True)
    careful.judge("b", [sequence()])
    processes.fates["b"] = True

    assert careful.judge("c", [suspect], certain=True).guilty == [suspect]


def test_a_verdict_does_not_wait_for_ever(careful: Suspicion, time: Clock) -> None:
    """Workers that stay away are taken for dead."""
    suspect = sequence()
    careful.judge("a", [suspect])
    careful.judge("b", [suspect])

    time.now += 31

    assert careful.review().guilty == [suspect]


def test_whoever_ended_meanwhile_is_not_judged(careful: Suspicion, processes: Processes) -> None:
    """Its client left."""
    suspect = sequence()
    careful.judge("a", [suspect])
    careful.judge("b", [suspect])
    suspect.abandon()
    careful.forget(suspect.request)
    processes.fates.update(a=False, b=False)

    verdict = careful.review()

    assert (verdict.innocent, verdict.guilty, careful.trying) == ([], [], False)


def test_a_cut_on_trial_is_no_proof(careful: Suspicion, processes: Processes) -> None:
    """Who is on trial goes on with it when the worker only lost its connection."""
    one, two = sequence(), sequence()
    processes.fates.update(a=False, b=False)
    careful.judge("a", [one, two])
    careful.judge("b", [one, two])
    tried = careful.next_trial(open_until_ended)

    processes.fates["c"] = None
    assert careful.judge("c", tried).guilty == []
    processes.fates["c"] = True
    assert careful.review().innocent == tried
    processes.fates["d"] = False

    assert careful.judge("d", tried).guilty == tried
