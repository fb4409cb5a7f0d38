"""Large frames are cut into parts that are the same together."""

import pytest

from tokenwire.coordinator.fleet.frame_parts import MOST_TOKENS, is_large, parts_of
from tokenwire.v1 import inference_pb2 as pb


def scores(slot: int, count: int, width: int, first: int = 0) -> pb.Logprobs:
    """Return a slot's rows, each with ids of its own."""
    ids = range(first * width, (first + count) * width)
    rows = pb.LogprobRows(width=width, token_ids=ids, logprobs=ids, sampled_ranks=range(count))
    return pb.Logprobs(slot=slot, rows=rows)


def together(parts: list[pb.StepFrame]) -> dict[int, list[object]]:
    """Return what each slot gets, in order."""
    got: dict[int, list[object]] = {}
    for part in parts:
        for info in part.prefills:
            got.setdefault(info.slot, []).append("prefill")
        for each in part.logprobs:
            got.setdefault(each.slot, []).extend(each.rows.token_ids)
        start = 0
        for slot, count in zip(part.slots, part.counts, strict=True):
            got.setdefault(slot, []).extend(f"token {each}" for each in part.token_ids[start : start + count])
            start += count
        for finish in part.finishes:
            got.setdefault(finish.slot, []).append("end")
    return got


@pytest.mark.parametrize(
    ("tokens", "width", "large"),
    [(MOST_TOKENS, 0, False), (MOST_TOKENS + 1, 0, True), (95, 21, False), (96, 21, True)],
)
def test_frames_are_large_by_their_tokens_and_log_probabilities(tokens: int, width: int, large: bool) -> None:
    """One of a usual batch is not."""
    rows = [scores(slot, 1, width) for slot in range(tokens)] if width else []

    assert is_large(pb.StepFrame(slots=range(tokens), token_ids=range(tokens), logprobs=rows)) is large


def test_many_choices_with_log_probabilities_come_in_parts_of_a_bounded_cost() -> None:
    """Each with the rows of its tokens, before them, and nothing else."""
    slots = range(200)
    frame = pb.StepFrame(
        slots=slots,
        token_ids=slots,
        logprobs=[scores(slot, 1, 21, slot) for slot in slots],
        prefills=[pb.PrefillInfo(slot=slot) for slot in slots],
        finishes=[pb.Finish(slot=slot) for slot in slots],
        weight_version="v1",
    )

    parts = list(parts_of(frame))

    assert max(sum(len(each.rows.token_ids) for each in part.logprobs) for part in parts) <= MOST_TOKENS // 2 + 21
    assert {part.weight_version for part in parts} == {"v1"}
    assert together(parts) == {
        slot: ["prefill", *range(21 * slot, 21 * slot + 21), f"token {slot}", "end"] for slot in slots
    }


def test_many_tokens_of_a_slot_come_in_parts() -> None:
    """In order, whatever rows they came in; the end comes with the last ones, and that of others too."""
    count = 1_000
    frame = pb.StepFrame(
        slots=[3, 5],
        counts=[count, 1],
        token_ids=[*range(count), 7],
        logprobs=[scores(3, 300, 5), scores(3, 700, 5, 300)],
        finishes=[pb.Finish(slot=3), pb.Finish(slot=9)],
    )

    parts = list(parts_of(frame))

    assert len(parts) > 1
    for part in parts:
        assert sum(len(each.rows.sampled_ranks) for each in part.logprobs) == sum(part.counts) - (5 in part.slots)
    got = together(parts)
    assert [each for each in got[3] if isinstance(each, int)] == list(range(5 * count))
    assert [each for each in got[3] if isinstance(each, str)] == [*(f"token {each}" for each in range(count)), "end"]
    assert (got[5], got[9]) == (["token 7"], ["end"])


def test_log_probabilities_stay_beside_their_tokens() -> None:
    """In whichever part they come."""
    count = 3 * MOST_TOKENS
    frame = pb.StepFrame(
        slots=[3], counts=[count], token_ids=range(count), sampled_logprobs=[-float(each) for each in range(count)]
    )

    parts = list(parts_of(frame))

    assert len(parts) > 2
    for part in parts:
        assert [*part.sampled_logprobs] == [-float(each) for each in part.token_ids]
