"""Tests of what is in a pooling command."""

import pytest

from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.pool_inputs import inputs_of


def test_each_input_has_its_own_ids() -> None:
    """In the order of the slots; one may be empty."""
    assert inputs_of(pb.Pool(slots=[4, 5, 6], lengths=[2, 0, 1], token_ids=[1, 2, 3])) == [[1, 2], [], [3]]


@pytest.mark.parametrize(("slots", "lengths"), [([1, 2], [3]), ([1], [1, 2]), ([1], [2]), ([1], [4]), ([1], [])])
def test_a_command_that_does_not_add_up_is_refused(slots: list[int], lengths: list[int]) -> None:
    """Its lengths are those of its slots and ids."""
    with pytest.raises(InvalidRequest, match="Request r has 3 ids for lengths"):
        inputs_of(pb.Pool(request_id="r", slots=slots, lengths=lengths, token_ids=[1, 2, 3]))
