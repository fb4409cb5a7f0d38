"""Prompts as bytes."""

from array import array

import pytest

from tokenwire.coordinator.fleet.submission import packed_ids
from tokenwire.errors import InvalidRequest
from tokenwire.protocol.packed_ids import prompt_ids
from tokenwire.v1 import inference_pb2 as pb

IDS = [0, 1, 65_536, 2**32 - 1]


def test_a_packed_prompt_is_what_it_was() -> None:
    """From a list or an array."""
    for token_ids in (IDS, array("I", IDS)):
        assert [*prompt_ids(pb.Submit(packed_prompt_token_ids=packed_ids(token_ids)))] == IDS


def test_ids_are_little_endian() -> None:
    """On any machine."""
    assert packed_ids([1, 256]) == b"\1\0\0\0\0\1\0\0"


def test_older_coordinators_send_numbers() -> None:
    """Which are read as they are."""
    assert prompt_ids(pb.Submit(prompt_token_ids=IDS)) == IDS


def test_a_part_of_an_id_is_refused() -> None:
    """Rather than left out."""
    with pytest.raises(InvalidRequest, match="7 bytes are no ids of 4 bytes each"):
        prompt_ids(pb.Submit(packed_prompt_token_ids=bytes(7)))
