"""Who is to blame for workers that die."""

import pytest

from coordinator.fleet.failover.sequence import Loss, ResumableSequence
from coordinator.fleet.failover.suspicion import Suspicion, is_undecided
from tests.clock import Clock
from tests.workers import Listener


class Keeper:
    """Keeps nothing."""

    def lost(self, sequence: ResumableSequence, loss: Loss) -> None:
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
    return Suspicion(time)


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
