"""Walks over many, of which one breaks."""

import pytest

from tokenwire.for_each import for_each


def test_whoever_breaks_is_handed_over_and_the_others_have_their_turn() -> None:
    """In their order, and those that come during the walk are not of it."""
    items, done, broken = [1, 0, 2], [], []

    def divide(item: int) -> None:
        items.append(9)
        done.append(1 / item)

    for_each(items, divide, lambda item, error: broken.append((item, type(error))))

    assert (done, broken) == ([1.0, 0.5], [(0, ZeroDivisionError)])


def test_who_breaks_twice_breaks_alone(caplog: pytest.LogCaptureFixture) -> None:
    """What the handling of an error raises is in the log."""
    done: list[int] = []

    def refuse(item: int, error: Exception) -> None:
        raise ValueError("no help")

    for_each([0, 1], lambda item: done.append(1 // item), refuse)

    assert done == [1]
    assert "no help" in caplog.text


def test_a_walk_can_be_cancelled() -> None:
    """What ends the process or the task ends the walk."""

    def leave(item: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        for_each([1, 2], leave)
