"""Collections of garbage, and when there are none."""

import gc

import pytest

from tokenwire.gc_tuning import gc_disabled


def test_nothing_is_collected_while_many_objects_are_made() -> None:
    """And all is as before afterwards, also when that fails."""

    def make() -> None:
        with gc_disabled():
            assert not gc.isenabled()
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        make()
    assert gc.isenabled()


def test_who_does_without_collections_goes_on_so() -> None:
    """Nothing is turned on that was off."""
    gc.disable()
    try:
        with gc_disabled():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
