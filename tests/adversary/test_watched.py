"""What watches a coordinator keeps nothing of it."""

import gc
import io
import weakref

from tests.adversary.watched import write_stacks


class _Large:
    """What a function has."""


def _watched() -> "weakref.ref[_Large]":
    large, stacks = _Large(), io.StringIO()
    write_stacks(stacks)
    assert "in _watched\n" in stacks.getvalue()
    return weakref.ref(large)


def test_stacks_keep_nothing_of_those_they_are_of() -> None:
    """Without the collector of cycles: memory that watching keeps would be blamed on what is watched."""
    gc.disable()
    try:
        assert _watched()() is None
    finally:
        gc.enable()
