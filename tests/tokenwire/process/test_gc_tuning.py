"""Garbage collection, and when it is disabled."""

import gc

import pytest

from tokenwire.process.gc_tuning import collect_rarely, gc_disabled


def test_nothing_is_collected_while_many_objects_are_created() -> None:
    """Collection is enabled again afterwards, also after an error."""

    def make() -> None:
        with gc_disabled():
            assert not gc.isenabled()
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        make()
    assert gc.isenabled()


def test_disabled_collection_stays_disabled() -> None:
    """It is not enabled if it was not before."""
    gc.disable()
    try:
        with gc_disabled():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_requests_in_flight_are_no_reason_to_collect() -> None:
    """Some hundred of them, with some sixty objects each; later generations are collected as before."""
    before = gc.get_threshold()
    try:
        collect_rarely()
        assert gc.get_threshold() == (50_000, *before[1:])
    finally:
        gc.set_threshold(*before)
