"""Dispatching frames: errors of one listener, and protocol errors of a worker."""

import pytest

from tests.workers import Listener
from tokenwire.coordinator.fleet.frames import check_large, check_sizes, dispatch
from tokenwire.coordinator.fleet.sampled_tokens import SampledTokens
from tokenwire.coordinator.fleet.slots import SlotTable
from tokenwire.errors import EngineFailed, ProtocolError, TokenwireError
from tokenwire.v1 import inference_pb2 as pb

LENGTH = pb.FINISH_REASON_LENGTH
ROWS = pb.LogprobRows(width=1, token_ids=[1], logprobs=[-1.0], sampled_ranks=[1])


def test_first_tokens_without_their_log_probabilities_are_passed_to_nobody() -> None:
    """Another worker may serve the sequence, also its prompt; the slot is to be aborted, and others are served."""
    slots, unscored, scored, plain = SlotTable(), Listener(), Listener(), Listener()
    taken = [slots.take(unscored, is_scored=True), slots.take(scored, is_scored=True), slots.take(plain)]
    prefills = [pb.PrefillInfo(slot=slot) for slot in taken]
    logprobs = [pb.Logprobs(slot=1, rows=ROWS)]

    aborts = dispatch(pb.StepFrame(slots=taken, token_ids=[7, 8, 9], prefills=prefills, logprobs=logprobs), slots)
    later = dispatch(pb.StepFrame(slots=[1, 2], token_ids=[8, 9]), slots)

    assert (aborts, later) == ([0], [])
    assert isinstance(unscored.error, EngineFailed)
    assert (unscored.token_ids, scored.token_ids, plain.token_ids) == ([], [8, 8], [9, 9])
    assert unscored.prefills == []


class Breaking(Listener):
    """Raises in one of its methods, and perhaps when it is failed."""

    def __init__(self, breaks: str, fails: bool = True) -> None:
        super().__init__()
        self._breaks = breaks
        self._fails = fails

    def prefilled(self, info: pb.PrefillInfo) -> None:
        """Raise or record."""
        self._break("prefilled")

    def scored(self, rows: pb.LogprobRows) -> None:
        """Raise or record."""
        self._break("scored")

    def weights(self, version: str) -> None:
        """Raise or record."""
        self._break("weights")

    def step(self, token_ids: list[int], finish: pb.Finish | None) -> bool:
        """Raise or record."""
        self._break("step")
        return super().step(token_ids, finish)

    def fail(self, error: TokenwireError) -> None:
        """Record, and perhaps raise."""
        super().fail(error)
        if not self._fails:
            raise ValueError("cannot even fail")

    def _break(self, name: str) -> None:
        if name == self._breaks:
            raise ValueError(f"cannot take {name}")


def full(*finishes: pb.Finish) -> pb.StepFrame:
    """Return a frame with everything for slots 0 and 1."""
    return pb.StepFrame(
        slots=[0, 1],
        token_ids=[7, 8],
        prefills=[pb.PrefillInfo(slot=0), pb.PrefillInfo(slot=1)],
        logprobs=[pb.Logprobs(slot=0, rows=ROWS), pb.Logprobs(slot=1, rows=ROWS)],
        finishes=finishes,
        weight_version="new",
    )


def test_what_a_worker_owes_to_one_reply_ends_that_reply() -> None:
    """With the error that says so, not as one of this coordinator; others of the session go on."""

    class Owed(Listener):
        def step(self, token_ids: list[int], finish: pb.Finish | None) -> bool:
            raise ProtocolError("it sent too little")

    slots, owed, complete = SlotTable(), Owed(), Listener()
    slots.take(owed)
    slots.take(complete)

    assert dispatch(pb.StepFrame(slots=[0, 1], token_ids=[7, 8]), slots) == [0]
    assert isinstance(owed.error, ProtocolError)
    assert (complete.token_ids, complete.error) == ([8], None)


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("breaks", ["prefilled", "scored", "weights", "step"])
def test_a_listener_that_raises_fails_alone(breaks: str, ends: bool, fails: bool) -> None:
    """Whatever it raises, and when: it fails once, its slot is aborted or free, its neighbour gets everything."""
    slots, broken, complete = SlotTable(), Breaking(breaks, fails), Listener()
    slots.take(broken)
    slots.take(complete)

    unwanted = dispatch(full(*([pb.Finish(slot=0, reason=LENGTH)] if ends else [])), slots, has_new_weights=True)

    assert isinstance(broken.error, EngineFailed)
    assert f"cannot take {breaks}" in broken.error.message
    assert (broken.token_ids, broken.steps_after_end) == ([], 0)
    assert (complete.token_ids, len(complete.prefills), complete.versions) == ([8], 1, [(0, "new")])
    assert (unwanted, slots.open) == (([], 1) if ends else ([0], 2))


@pytest.mark.parametrize(
    "frame",
    [
        pb.StepFrame(slots=[0], token_ids=[7, 8]),
        pb.StepFrame(slots=[0, 1], token_ids=[7]),
        pb.StepFrame(slots=[0, 1], counts=[2], token_ids=[7, 8]),
        pb.StepFrame(slots=[0], counts=[2], token_ids=[7]),
        pb.StepFrame(slots=[0, 0], token_ids=[7, 8]),
        pb.StepFrame(slots=[0, 1, 0], counts=[1, 1, 1], token_ids=[7, 8, 9]),
        pb.StepFrame(slots=[2], token_ids=[7]),
        pb.StepFrame(slots=[99], token_ids=[7]),
        pb.StepFrame(slots=[99], counts=[2], token_ids=[7, 8]),
        pb.StepFrame(prefills=[pb.PrefillInfo(slot=2)]),
        pb.StepFrame(prefills=[pb.PrefillInfo(slot=99)]),
        pb.StepFrame(logprobs=[pb.Logprobs(slot=2, rows=ROWS)]),
        pb.StepFrame(logprobs=[pb.Logprobs(slot=99, rows=ROWS)]),
        pb.StepFrame(finishes=[pb.Finish(slot=2, reason=LENGTH)]),
        pb.StepFrame(finishes=[pb.Finish(slot=99, reason=LENGTH)]),
        pb.StepFrame(finishes=[pb.Finish(slot=0, reason=LENGTH)] * 2),
    ],
)
def test_a_frame_that_violates_the_protocol_is_a_protocol_error(frame: pb.StepFrame) -> None:
    """Lengths that do not match, slots that are free or were never taken, one slot named or ended twice."""
    slots, listeners = SlotTable(), [Listener() for _ in range(3)]
    for listener in listeners:
        slots.take(listener)
    slots.release(2)

    with pytest.raises(ProtocolError):
        dispatch(frame, slots)

    assert slots.open <= 2
    assert len({slots.take(Listener()) for _ in range(3)}) == 3
    assert listeners[2].token_ids == []


def test_tokens_for_an_aborted_slot_are_discarded() -> None:
    """Until its terminal event the worker may send anything for it."""
    slots, listener = SlotTable(), Listener()
    slots.take(listener)
    slots.take(Listener())
    slots.give_up(0)

    assert dispatch(full(pb.Finish(slot=0, reason=LENGTH)), slots) == []

    assert (listener.token_ids, slots.open) == ([], 1)


@pytest.mark.parametrize(
    "fields",
    [
        {"slots": [0, 0, 0]},
        {"finishes": [pb.Finish(slot=0)] * 3},
        {"prefills": [pb.PrefillInfo(slot=0)] * 3},
        {"logprobs": [pb.Logprobs(slot=0)]},
    ],
)
def test_a_frame_has_no_more_parts_than_slots_are_open(fields: dict[str, object]) -> None:
    """Found by counts alone, before anything is made of them."""
    slots = SlotTable()
    slots.take(Listener())
    slots.take(Listener())

    with pytest.raises(ProtocolError, match=r"named 3 slots in one frame: 1 or more are not open|0 tokens"):
        check_sizes(pb.StepFrame(**fields), slots)  # type: ignore[arg-type]


def test_a_slot_gets_no_more_tokens_in_large_frames_than_were_asked_for() -> None:
    """In one, or in several."""
    slots = SlotTable()
    slots.take(Listener(), most_tokens=10)

    check_large(pb.StepFrame(slots=[0], counts=[6], token_ids=[7] * 6), slots)
    with pytest.raises(ProtocolError, match="6 tokens for slot 0"):
        check_large(pb.StepFrame(slots=[0], counts=[6], token_ids=[7] * 6), slots)


@pytest.mark.parametrize(
    "rows",
    [
        pb.LogprobRows(width=1, token_ids=[1, 2, 3], logprobs=[-1.0] * 3),
        pb.LogprobRows(width=2, token_ids=[1, 2, 3], logprobs=[-1.0] * 3),
        pb.LogprobRows(width=2, token_ids=[1, 2], logprobs=[-1.0]),
        pb.LogprobRows(token_ids=[1, 2], logprobs=[-1.0] * 2),
    ],
)
def test_log_probabilities_of_large_frames_are_rows_of_their_tokens(rows: pb.LogprobRows) -> None:
    """Others are not decoded."""
    slots = SlotTable()
    slots.take(Listener())

    with pytest.raises(ProtocolError, match="rows"):
        check_large(
            pb.StepFrame(slots=[0], counts=[2], token_ids=[7, 8], logprobs=[pb.Logprobs(slot=0, rows=rows)]), slots
        )


def test_log_probabilities_must_be_as_many_as_tokens() -> None:
    """They could not be attributed else."""
    slots = SlotTable()
    slots.take(Listener())
    with pytest.raises(ProtocolError, match="2 log-probabilities beside 1 tokens"):
        dispatch(pb.StepFrame(slots=[0], token_ids=[7], sampled_logprobs=[-1.0, -2.0]), slots)


def test_a_recorded_slot_is_recorded_until_it_ends() -> None:
    """Whether the worker ends it, or its listener stops it."""
    slots, sampled = SlotTable(), [SampledTokens(1), SampledTokens(1)]
    for each in sampled:
        slots.runs.begin(slots.take(Listener()), each.begin(1, by_rows=False))
    last = pb.Finish(slot=0, reason=LENGTH)
    dispatch(pb.StepFrame(slots=[0, 1], token_ids=[7, 8], sampled_logprobs=[-1.0, -2.0], finishes=[last]), slots)
    slots.give_up(1)
    dispatch(pb.StepFrame(slots=[1], token_ids=[9], sampled_logprobs=[-3.0]), slots)

    assert [[*(each.logprobs(1) or ())] for each in sampled] == [[-1.0], [-2.0]]
    assert [each.logprobs(2) for each in sampled] == [None, None]
    assert not slots.runs.recorded
