"""Loops in which one iteration fails."""

import pytest

from tokenwire.process.for_each import call_each, for_each


def test_an_error_is_handled_and_the_loop_continues() -> None:
    """In order, without items that are added during the loop."""
    items, done, broken = [1, 0, 2], [], []

    def divide(item: int) -> None:
        items.append(9)
        done.append(1 / item)

    for_each(items, divide, lambda item, error: broken.append((item, type(error))))

    assert (done, broken) == ([1.0, 0.5], [(0, ZeroDivisionError)])


def test_an_error_of_the_handler_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged."""
    done: list[int] = []

    def refuse(item: int, error: Exception) -> None:
        raise ValueError("no help")

    for_each([0, 1], lambda item: done.append(1 // item), refuse)

    assert done == [1]
    assert "no help" in caplog.text


def test_a_loop_can_be_cancelled() -> None:
    """Exceptions that end the process or the task end the loop."""

    def leave(item: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        for_each([1, 2], leave)


def test_an_error_of_a_callback_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The others are called with the same arguments; those that come meanwhile are not."""
    called: list[tuple[int, int]] = []
    callbacks = [lambda a, b: a // b, lambda *given: called.append(given)]
    callbacks[0:0] = [lambda *_: callbacks.append(callbacks[-1])]

    call_each(callbacks, 1, 0)

    assert called == [(1, 0)]
    assert "ZeroDivisionError" in caplog.text
