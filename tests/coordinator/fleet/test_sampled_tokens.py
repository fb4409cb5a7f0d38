"""Log-probabilities of recorded slots are those of the frames, whichever form they come in, and of all runs."""

from array import array

import pytest

from tokenwire.coordinator.fleet.sampled_tokens import SampledTokens, ScoredRun, SlotRuns
from tokenwire.v1 import inference_pb2 as pb


def rows(*logprobs: float, width: int = 1) -> pb.LogprobRows:
    """Return rows whose first columns are these."""
    values = [value for each in logprobs for value in (each, *[-9.0] * (width - 1))]
    return pb.LogprobRows(width=width, token_ids=[0] * len(values), logprobs=values)


def scored_step(slots: list[int], logprobs: list[float], counts: list[int] | None = None) -> pb.StepFrame:
    """Return a frame whose tokens have these log-probabilities."""
    return pb.StepFrame(slots=slots, token_ids=[7] * len(logprobs), sampled_logprobs=logprobs, counts=counts)


def recorded(runs: SlotRuns, slot: int, by_rows: bool = False) -> SampledTokens:
    """Return what is sampled for a slot from now on."""
    sampled = SampledTokens(3)
    runs.begin(slot, sampled.begin(3, by_rows))
    return sampled


def test_only_recorded_slots_are_taken() -> None:
    """From frames of one token for each slot, and of several."""
    runs = SlotRuns()
    sampled = recorded(runs, 1)
    runs.on_frame(scored_step([0, 1], [-1.0, -2.0]))
    runs.on_frame(scored_step([1, 5], [-3.0, -4.0, -5.0], counts=[2, 1]))
    runs.end(1)
    runs.on_frame(scored_step([1], [-6.0]))

    assert sampled.logprobs(3) == array("f", [-2.0, -3.0, -4.0])
    assert sampled.logprobs(2) == array("f", [-2.0, -3.0])
    assert sampled.logprobs(4) is None
    assert not runs.recorded


@pytest.mark.parametrize("steps", [1, 2, 31, 32, 33, 100])
def test_each_of_many_steps_is_taken_once(steps: int) -> None:
    """Also where slots begin and end in between, and others have rows."""
    runs = SlotRuns()
    first, second, other = recorded(runs, 0), recorded(runs, 2), recorded(runs, 1, by_rows=True)
    for number in range(steps):
        runs.on_frame(scored_step([2, 1, 0], [200.0 + number, 9.0, number]))
    runs.end(0)
    third = recorded(runs, 0)
    for number in range(steps):
        runs.on_frame(scored_step([0, 2], [300.0 + number, 200.0 + steps + number]))
    runs.take_steps()

    assert first.logprobs(steps) == array("f", range(steps))
    assert second.logprobs(2 * steps) == array("f", range(200, 200 + 2 * steps))
    assert third.logprobs(steps) == array("f", range(300, 300 + steps))
    assert (other.logprobs(1), first.logprobs(steps + 1)) == (None, None)


def test_log_probabilities_of_a_client_are_taken_from_its_rows() -> None:
    """Those of the sampled tokens, which come first; the ones beside the tokens are of other slots."""
    runs = SlotRuns()
    sampled = recorded(runs, 0, by_rows=True)
    logprobs = [pb.Logprobs(slot=0, rows=rows(-1.5, -2.5, width=3)), pb.Logprobs(slot=1, rows=rows(-7.0))]
    runs.on_frame(
        pb.StepFrame(slots=[0, 1], counts=[2, 1], token_ids=[7, 8, 9], sampled_logprobs=[-8.0] * 3, logprobs=logprobs)
    )

    assert sampled.logprobs(2) == array("f", [-1.5, -2.5])


def test_log_probabilities_that_did_not_come_are_unknown() -> None:
    """Of any of the tokens: those that are there could not be told apart."""
    runs = SlotRuns()
    sampled = recorded(runs, 0)
    runs.on_frame(pb.StepFrame(slots=[0], token_ids=[7]))
    runs.end(0)

    assert sampled.logprobs(1) is None


def run_of(sampled: SampledTokens, prompt_tokens: int, logprobs: list[float]) -> ScoredRun:
    """Let a worker sample tokens after a prompt of this length."""
    run = sampled.begin(prompt_tokens, by_rows=False)
    run.logprobs.extend(logprobs)
    return run


def test_a_continued_sequence_has_those_of_both_workers() -> None:
    """What the first one sampled beyond the tokens that were continued, nobody was sent."""
    sampled = SampledTokens(3)
    run_of(sampled, 3, [-1.0, -1.5, -9.0])
    run_of(sampled, 5, [-2.0, -2.5])

    assert sampled.logprobs(4) == array("f", [-1.0, -1.5, -2.0, -2.5])


def test_a_repeated_sequence_keeps_what_was_sent() -> None:
    """With its first log-probabilities; only what comes after it is of the second worker."""
    sampled = SampledTokens(3)
    run_of(sampled, 3, [-1.0, -1.5])
    run_of(sampled, 3, [-2.0, -2.5, -2.75])

    assert sampled.logprobs(3) == array("f", [-1.0, -1.5, -2.75])


def test_a_sequence_that_a_worker_did_not_score_is_unknown() -> None:
    """Also after another one has gone on with it, or repeated it: the client got the tokens of the first."""
    sampled = SampledTokens(3)
    run_of(sampled, 3, [])
    run_of(sampled, 5, [-2.0])
    assert sampled.logprobs(3) is None

    run_of(sampled, 3, [-1.0, -1.5, -2.5])
    assert sampled.logprobs(2) is None
