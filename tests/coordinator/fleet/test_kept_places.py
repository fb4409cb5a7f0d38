"""How many places a tenant may keep at a worker."""

from tests.workers import Listener
from tokenwire.coordinator.fleet.kept_places import KeptPlaces
from tokenwire.coordinator.fleet.slots import SlotTable


def test_a_tenant_leaves_an_eighth_to_others() -> None:
    """What it has itself counts."""
    places = KeptPlaces()
    assert places.room("one", 256) == 224
    places.add(range(100), "one")
    assert places.room("one", 256) == 124
    places.add(range(100, 224), "one")
    assert places.room("one", 256) == 0

    places.remove(7)
    places.remove(7)

    assert places.room("one", 256) == 1


def test_what_a_tenant_leaves_is_divided_alike() -> None:
    """So the next ones leave some too."""
    places = KeptPlaces()
    places.add(range(224), "one")
    assert places.room("two", 256) == 28

    places.add(range(224, 252), "two")

    assert places.room("three", 256) == 3
    assert places.room("two", 256) == 0


def test_of_a_few_places_one_is_left() -> None:
    """The last one that nobody keeps is for whoever comes."""
    places = KeptPlaces()
    assert [places.room("one", capacity) for capacity in (1, 2, 4)] == [1, 1, 3]
    places.add(range(3), "one")

    assert places.room("two", 4) == 1
    assert places.room("one", 4) == 0


def test_places_are_kept_until_their_slots_are_free() -> None:
    """Also while they are aborted, and the worker has not ended them; none once the session has ended."""
    slots = SlotTable()
    taken = [slots.take(Listener()) for _ in range(3)]
    slots.kept.add(taken, "one")
    slots.give_up(taken[0])
    assert slots.kept.room("one", 4) == 0

    slots.release(taken[0])
    slots.release(taken[1])
    assert slots.kept.room("one", 4) == 2

    slots.release_all()
    assert slots.kept.room("one", 4) == 3
    assert not slots.kept._counts
