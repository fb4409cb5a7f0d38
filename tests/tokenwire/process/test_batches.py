"""Tests of batches by size."""

from tokenwire.process.batches import batches_by_size


def test_a_batch_ends_with_the_item_that_makes_it_large_enough() -> None:
    """Items keep their order; the last batch is what is left, and of nothing there is none."""
    assert list(batches_by_size(["a", "bb", "ccc", "dddd", "e"], len, 3)) == [["a", "bb"], ["ccc"], ["dddd"], ["e"]]
    assert list(batches_by_size(["aaa"], len, 3)) == [["aaa"]]
    assert list(batches_by_size([], len, 3)) == []
