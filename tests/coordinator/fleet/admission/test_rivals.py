"""How many free places a tenant takes while others wait in other processes."""

from tests.clock import Clock
from tokenwire.coordinator.fleet.admission.rivals import Rival, Rivals


def rivals_at(*rivals: Rival) -> tuple[Rivals, Clock]:
    """Return rivals, and the clock by which places are left for them."""
    clock = Clock()
    known = Rivals(clock)
    known.set(rivals)
    return known, clock


def test_places_are_for_those_that_go_before() -> None:
    """As many as they want, and none for those that go later."""
    rivals, _ = rivals_at(Rival(100, 3), Rival(5000, 9))

    assert rivals.room(5, 8, tag=1000, cost=10) == 2


def test_nobody_is_before_a_tenant_that_has_had_as_much() -> None:
    """Else two processes would leave a place to each other."""
    rivals, _ = rivals_at(Rival(1000, 3))

    assert rivals.room(2, 1, tag=1000, cost=10) == 1


def test_free_places_are_divided_without_an_exchange() -> None:
    """Each that is left is assumed to be taken, until more is known."""
    rivals, _ = rivals_at(Rival(1000, 50))

    assert [rivals.room(10, 10, tag=1000, cost=10), rivals.room(5, 5, tag=1050, cost=10)] == [5, 0]
    rivals.set([Rival(1050, 45)])
    assert rivals.room(5, 5, tag=1050, cost=10) == 3


def test_places_stay_left_until_more_is_known() -> None:
    """Also once there is one for everybody who waits elsewhere."""
    rivals, _ = rivals_at(Rival(0, 2))

    assert [rivals.room(2, 1, tag=1000, cost=10) for _ in range(3)] == [0, 0, 0]
    assert rivals.room(3, 1, tag=1000, cost=10) == 1


def test_places_that_nobody_takes_for_a_second_are_used() -> None:
    """Those elsewhere may wait for something else; each such place is given once."""
    rivals, clock = rivals_at(Rival(0, 9))
    for free in (4, 2, 3, 4, 4, 4, 4, 4):
        assert rivals.room(free, 9, tag=1000, cost=10) == 0
        clock.now += 0.125

    assert [rivals.room(4, 1, tag=1000, cost=10), rivals.room(3, 9, tag=1000, cost=10)] == [1, 1]
    assert rivals.room(2, 9, tag=1000, cost=10) == 0


def test_places_that_were_not_looked_at_are_not_known_to_be_left() -> None:
    """Others may have taken them, and given them back."""
    rivals, clock = rivals_at(Rival(0, 9))
    assert rivals.room(4, 9, tag=1000, cost=10) == 0
    clock.now += 60

    assert rivals.room(4, 9, tag=1000, cost=10) == 0


def test_without_room_nothing_is_taken() -> None:
    """Workers may have more than they run at a time."""
    rivals, _ = rivals_at(Rival(0, 1))

    assert rivals.room(-2, 3, tag=1000, cost=10) == 0
