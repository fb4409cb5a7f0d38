"""Limits on what is buffered for slow readers."""

import pytest

from tokenwire.coordinator.http.backlog import Backlog


class CountedReader:
    """A connection whose client reads nothing."""

    def __init__(self, backlog: Backlog, share: str = "") -> None:
        self.share = share
        self.held_bytes = 0
        self.was_cut = False
        self._backlog = backlog

    def hold(self, size_bytes: int) -> None:
        """Have so much unread, unless it was cut."""
        if not self.was_cut:
            self._backlog.hold(self, size_bytes)

    def cut(self) -> None:
        """Hold nothing any longer."""
        self.was_cut = True
        self._backlog.hold(self, 0)


def readers_of(backlog: Backlog, share: str, *sizes: int) -> list[CountedReader]:
    """Return readers that hold so much each."""
    readers = [CountedReader(backlog, share) for _ in sizes]
    for reader, size in zip(readers, sizes, strict=True):
        reader.hold(size)
    return readers


def cut_of(readers: list[CountedReader]) -> list[int]:
    """Return which readers were cut."""
    return [index for index, reader in enumerate(readers) if reader.was_cut]


def test_one_reader_has_a_share() -> None:
    """It may buffer a sixteenth of the limit, however much is free."""
    backlog = Backlog(1600)
    large, small = readers_of(backlog, "", 101, 100)
    small.hold(50)

    assert (large.was_cut, small.was_cut) == (True, False)
    assert backlog.held_bytes == 50


def test_all_readers_together_are_bounded() -> None:
    """Beyond the limit the one with most is cut, whoever adds; bytes freed by others are available again."""
    backlog = Backlog(1600)
    readers = readers_of(backlog, "", *[99] * 15, 100)
    adding = CountedReader(backlog)
    adding.hold(15)
    assert cut_of(readers) == []

    adding.hold(16)
    assert (cut_of(readers), adding.was_cut) == ([15], False)
    readers[0].hold(0)
    adding.hold(100)
    assert cut_of([*readers, adding]) == [15]
    assert backlog.held_bytes == 14 * 99 + 100


@pytest.mark.parametrize("size", [1, 20, 100])
def test_a_share_that_holds_most_gives_way(size: int) -> None:
    """However little each of its readers holds, and whichever came first: another share's, with more, stays."""
    backlog = Backlog(1600)
    first, other = CountedReader(backlog, "first"), CountedReader(backlog, "other")
    first.hold(1)
    greedy = readers_of(backlog, "greedy", *[size] * (1600 // size))
    for held in range(1, 101):
        other.hold(held)

    assert (first.was_cut, other.was_cut) == (False, False)
    assert len(cut_of(greedy)) == -(-101 // size)
    assert backlog.held_bytes == 1600 - len(cut_of(greedy)) * size + 101


def test_who_was_let_go_leaves_nothing_behind() -> None:
    """A connection may serve another share afterwards."""
    backlog = Backlog(1600)
    (reader,) = readers_of(backlog, "first", 10)
    reader.share = "second"
    reader.hold(0)
    reader.hold(20)
    others = readers_of(backlog, "first", *[100] * 16)

    assert not reader.was_cut
    assert cut_of(others) == [0]
    reader.cut()
    assert backlog.held_bytes == 1500
