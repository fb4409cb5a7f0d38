"""What is held back for slow readers."""

from tokenwire.coordinator.http.backpressure import Backpressure


def test_one_reader_has_a_share() -> None:
    """A sixteenth of all, however much is free; to read is always good."""
    backlogs = Backpressure(1600)

    assert backlogs.changed(0, 100)
    assert not backlogs.changed(100, 101)
    assert backlogs.changed(101, 50)


def test_all_readers_together_are_bounded() -> None:
    """A reader that adds at the limit is too slow; bytes freed by others are available again."""
    backlogs = Backpressure(1600)
    assert all(backlogs.changed(0, 100) for _ in range(16))

    assert not backlogs.changed(0, 1)
    assert backlogs.changed(100, 0)
    assert backlogs.changed(1, 100)
    assert backlogs.held_bytes == 1600
