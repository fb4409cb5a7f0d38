"""The slot table: a slot is one sequence's until its terminal event."""

import pytest

from tests.workers import Listener
from tokenwire.coordinator.fleet.frames import dispatch
from tokenwire.coordinator.fleet.sampled_tokens import SampledTokens
from tokenwire.coordinator.fleet.slots import SlotTable
from tokenwire.errors import ProtocolError
from tokenwire.v1 import inference_pb2 as pb


def test_slots_are_small_and_reused_after_release() -> None:
    """Slots count from 0; a released one is taken again before a new one."""
    table = SlotTable()
    taken = [table.take(Listener()) for _ in range(3)]

    table.release(1)

    assert taken == [0, 1, 2]
    assert table.open == 2
    assert table.take(Listener()) == 1


def test_an_aborted_slot_stays_taken() -> None:
    """It is not reused before its terminal event."""
    table = SlotTable()
    slot = table.take(Listener())
    table.give_up(slot)

    assert table.take(Listener()) != slot


def test_a_free_slot_cannot_be_released() -> None:
    """A worker that refuses one is out of step: released twice, the slot would be taken by two sequences."""
    table = SlotTable()
    slot = table.take(Listener())
    table.release(slot)

    for wrong in (slot, slot + 1, slot + 2):
        with pytest.raises(ProtocolError, match="not open"):
            table.release(wrong)

    assert table.open == 0
    assert table.take(Listener()) != table.take(Listener())


def test_nothing_may_arrive_for_a_free_slot() -> None:
    """Its tokens could be anybody's."""
    table = SlotTable()
    table.release(table.take(Listener()))
    (free,) = table.listeners

    for arrives in (
        lambda: free.step([1], None),
        lambda: free.prefilled(pb.PrefillInfo()),
        lambda: free.scored(pb.LogprobRows()),
    ):
        with pytest.raises(ProtocolError, match="not open"):
            arrives()


def test_losing_the_session_returns_listeners_that_have_not_ended() -> None:
    """All slots are free afterwards; listeners of aborted slots are not returned."""
    table = SlotTable()
    first, second = Listener(), Listener()
    table.take(first)
    table.give_up(table.take(second))

    assert table.release_all() == [first]
    assert table.open == 0


def test_no_more_slots_are_freed_than_were_taken() -> None:
    """A count that is wrong is found where it becomes so, and not by the capacity that it gives away."""
    table = SlotTable()
    slot = table.take(Listener())
    table.open -= 1

    with pytest.raises(AssertionError, match="nobody had taken"):
        table.release(slot)


def test_a_session_that_ends_leaves_what_was_recorded() -> None:
    """The sequences go on elsewhere, after the tokens that they have."""
    table, sampled = SlotTable(), SampledTokens(1)
    table.runs.begin(table.take(Listener()), sampled.begin(1, by_rows=False))
    for logprob in (-1.0, -2.0):
        table.runs.on_frame(pb.StepFrame(slots=[0], token_ids=[7], sampled_logprobs=[logprob]))

    table.release_all()

    assert [*(sampled.logprobs(2) or ())] == [-1.0, -2.0]
    assert not table.runs.recorded


def test_slots_begin_with_their_first_tokens() -> None:
    """Not with a frame that brings them none; until they end, or are aborted."""
    table = SlotTable()
    taken = [table.take(Listener()) for _ in range(4)]
    dispatch(pb.StepFrame(slots=taken, counts=[1, 2, 0, 1], token_ids=[5] * 4), table)
    assert table.begun == {taken[0], taken[1], taken[3]}

    table.give_up(taken[0])
    dispatch(pb.StepFrame(finishes=[pb.Finish(slot=taken[1])]), table)
    assert table.begun == {taken[3]}
    table.release_all()
    assert table.begun == set()
