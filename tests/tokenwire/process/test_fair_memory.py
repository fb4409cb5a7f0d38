"""Memory is bounded in bytes and time, and nobody loses what is theirs because others have much."""

import random

import pytest

from tests.clock import Clock
from tokenwire.process.fair_memory import FairMemory, LargestShare


@pytest.fixture
def dropped() -> list[str]:
    """The keys that were dropped."""
    return []


@pytest.fixture
def memory(time: Clock, dropped: list[str]) -> FairMemory[str, int]:
    """Memory of 100 bytes for a minute."""
    return FairMemory(100, 60.0, time, dropped.append)


def test_who_has_most_loses_what_was_used_least_recently(
    memory: FairMemory[str, int], time: Clock, dropped: list[str]
) -> None:
    """However long others have not used theirs."""
    memory.put("other", 0, "other", 30)
    for number, key in enumerate("abc"):
        memory.put(key, number, "acme", 20)
    assert memory.use("a") == 0
    assert memory.find("b") == 1  # which is no use
    memory.put("d", 3, "acme", 20)

    assert dropped == ["b"]
    assert [memory.find(key) for key in ("other", "c", "a", "d")] == [0, 2, 0, 3]
    assert (memory.size, len(memory)) == (90, 4)
    time.now += 61
    memory.expire()
    assert dropped == ["b", "other", "c", "a", "d"]


def test_values_are_kept_for_a_time_after_their_last_use(
    memory: FairMemory[str, int], time: Clock, dropped: list[str]
) -> None:
    """Which is when they are put, used, or grow."""
    for key in ("found", "used", "grown"):
        memory.put(key, 1, "acme", 10)
    time.now += 50
    assert memory.find("found") == memory.use("used") == 1
    memory.grow("grown", 5)
    time.now += 20

    assert memory.find("found") is None
    assert memory.use("found") is None
    assert dropped == ["found"]
    assert memory.size == 25
    time.now += 50
    memory.expire()
    assert (memory.size, len(memory)) == (0, 0)


def test_a_value_that_takes_the_place_of_another_is_not_dropped(
    memory: FairMemory[str, int], dropped: list[str]
) -> None:
    """Its size and whose it is may be others; one that is too large is dropped at once."""
    memory.put("a", 1, "acme", 50)
    memory.put("a", 2, "other", 20)
    assert (memory.find("a"), memory.size, dropped) == (2, 20, [])

    memory.put("a", 3, "acme", 101)
    assert (memory.find("a"), memory.size, dropped) == (None, 0, ["a"])


def test_what_was_dropped_once_is_not_there(memory: FairMemory[str, int], dropped: list[str]) -> None:
    """And is not dropped again."""
    memory.put("a", 1, "acme", 50)

    assert memory.drop("a")
    assert not memory.drop("a")
    assert dropped == ["a"]
    assert memory.size == 0


def test_no_other_share_is_twice_as_large() -> None:
    """Whatever grows and shrinks."""
    source, shares, sizes = random.Random(1), LargestShare(), dict[str, int]()
    for _ in range(5000):
        name = str(source.randrange(50))
        size = source.choice([0, source.randrange(10), source.randrange(10**6)])
        shares.grow(name, size - sizes.get(name, 0))
        sizes[name] = size
        if any(sizes.values()):
            assert 2 * sizes[shares.find()] >= max(sizes.values())


def test_of_few_shares_the_largest_is_found() -> None:
    """However little it has more than others."""
    shares = LargestShare()
    for number in (128, 251, 130, 129):
        shares.grow(str(number), number)
    assert shares.find() == "251"


def test_without_shares_there_is_no_largest() -> None:
    """Those without a size are none."""
    shares = LargestShare()
    shares.grow("a", 5)
    shares.grow("a", -5)
    with pytest.raises(ValueError, match="empty"):
        shares.find()
