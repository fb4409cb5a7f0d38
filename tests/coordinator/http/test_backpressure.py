"""Limits on what is buffered for slow readers."""

from tokenwire.coordinator.http.backpressure import Backpressure


def test_one_reader_has_a_share() -> None:
    """It may buffer a sixteenth of the limit, however much is free; a decrease is always within the limits."""
    backpressure = Backpressure(1600)

    assert backpressure.changed(0, 100)
    assert not backpressure.changed(100, 101)
    assert backpressure.changed(101, 50)


def test_all_readers_together_are_bounded() -> None:
    """A reader that adds at the limit is too slow; bytes freed by others are available again."""
    backpressure = Backpressure(1600)
    assert all(backpressure.changed(0, 100) for _ in range(16))

    assert not backpressure.changed(0, 1)
    assert backpressure.changed(100, 0)
    assert backpressure.changed(1, 100)
    assert backpressure.held_bytes == 1600
