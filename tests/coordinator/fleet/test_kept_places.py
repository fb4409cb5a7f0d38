"""How many places a tenant may keep at a worker."""

from tokenwire.coordinator.fleet.kept_places import KeptPlaces


class RunningPart:
    """So many sequences of a request."""

    def __init__(self, count: int) -> None:
        self.count = count

    def running(self) -> list[int]:
        """Return as many as the test set."""
        return [*range(self.count)]


def test_a_tenant_leaves_an_eighth_to_others() -> None:
    """What it has itself counts, until it has ended; one with no bound keeps them all the same."""
    places, part = KeptPlaces(), RunningPart(100)
    assert places.room("one", 256) == 224
    places.add("one", part)
    assert places.room("one", 256) == 124
    part.count = 224
    assert places.room("one", 256) == 0

    part.count = 0

    assert places.room("one", 256) == 224
    assert not places._parts


def test_what_a_tenant_leaves_is_divided_alike() -> None:
    """So the next ones leave some too."""
    places = KeptPlaces()
    places.add("one", RunningPart(224))
    assert places.room("two", 256) == 28

    places.add("two", RunningPart(28))

    assert places.room("three", 256) == 3
    assert places.room("two", 256) == 0


def test_of_a_few_places_one_is_left() -> None:
    """The last one that nobody keeps is for whoever comes."""
    places = KeptPlaces()
    assert [places.room("one", capacity) for capacity in (1, 2, 4)] == [1, 1, 3]
    places.add("one", RunningPart(3))

    assert places.room("two", 4) == 1
    assert places.room("one", 4) == 0
