"""Who has about most of a shared memory."""

import random

import pytest

from tokenwire.process.largest_share import LargestShare


def test_no_other_share_is_twice_as_large() -> None:
    """Whatever grows and shrinks."""
    source, shares, sizes = random.Random(1), LargestShare(), dict[str, int]()
    for _ in range(5000):
        name = str(source.randrange(50))
        sizes[name] = source.choice([0, source.randrange(10), source.randrange(10**6)])
        shares.put(name, sizes[name])
        if any(sizes.values()):
            assert 2 * sizes[shares.find()] >= max(sizes.values())


def test_of_few_shares_the_largest_is_found() -> None:
    """However little it has more than others."""
    shares = LargestShare()
    for number in (128, 251, 130, 129):
        shares.put(str(number), number)
    assert shares.find() == "251"


def test_without_shares_there_is_no_largest() -> None:
    """Those without a size are none."""
    shares = LargestShare()
    shares.put("a", 5)
    shares.put("a", 0)
    with pytest.raises(ValueError, match="empty"):
        shares.find()
