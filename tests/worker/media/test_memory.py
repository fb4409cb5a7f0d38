"""Tests of the bound on memory for an item."""

import resource

import pytest

from tokenwire.worker.media.memory import bounded_memory

MIB = 2**20


def test_what_is_beyond_the_bound_is_an_error() -> None:
    """Before it is taken; afterwards the process may take what it might before."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    with bounded_memory(256 * MIB):
        assert len(bytearray(16 * MIB)) == 16 * MIB
        with pytest.raises(MemoryError):
            bytearray(512 * MIB)
    assert resource.getrlimit(resource.RLIMIT_AS) == before
    assert len(bytearray(512 * MIB)) == 512 * MIB
