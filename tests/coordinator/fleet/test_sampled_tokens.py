"""Tokens of recorded slots are those of the frames, whichever form they come in, and of all runs of a sequence."""

from array import array

from tokenwire.coordinator.fleet.sampled_tokens import SampledTokens, SlotRuns
from tokenwire.v1 import inference_pb2 as pb


def rows(*logprobs: float, width: int = 1) -> pb.LogprobRows:
    """Return rows whose first columns are these."""
    values = [value for each in logprobs for value in (each, *[-9.0] * (width - 1))]
    return pb.LogprobRows(width=width, token_ids=[0] * len(values), logprobs=values)


def test_only_recorded_slots_are_taken() -> None:
    """From frames of one token for each slot, and of several."""
    sampled, runs = SampledTokens(3), SlotRuns()
    runs.begin(1, sampled.begin(3, by_rows=False))
    runs.on_frame(pb.StepFrame(slots=[0, 1], token_ids=[7, 8], sampled_logprobs=[-1.0, -2.0]))
    runs.on_frame(pb.StepFrame(slots=[1, 5], counts=[2, 1], token_ids=[9, 10, 11], sampled_logprobs=[-3.0, -4.0, -5.0]))
    runs.end(1)
    runs.on_frame(pb.StepFrame(slots=[1], token_ids=[12], sampled_logprobs=[-6.0]))

    assert sampled.first(3) == (array("I", [8, 9, 10]), array("f", [-2.0, -3.0, -4.0]))
    assert sampled.first(2) == (array("I", [8, 9]), array("f", [-2.0, -3.0]))
    assert not runs.recorded


def test_log_probabilities_of_a_client_are_taken_from_its_rows() -> None:
    """Those of the sampled tokens, which come first; the ones beside the tokens are of other slots."""
    sampled, runs = SampledTokens(3), SlotRuns()
    runs.begin(0, sampled.begin(3, by_rows=True))
    logprobs = [pb.Logprobs(slot=0, rows=rows(-1.5, -2.5, width=3)), pb.Logprobs(slot=1, rows=rows(-7.0))]
    runs.on_frame(
        pb.StepFrame(slots=[0, 1], counts=[2, 1], token_ids=[7, 8, 9], sampled_logprobs=[-8.0] * 3, logprobs=logprobs)
    )

    assert sampled.first(2) == (array("I", [7, 8]), array("f", [-1.5, -2.5]))


def test_log_probabilities_that_did_not_come_are_unknown() -> None:
    """The tokens are there nonetheless."""
    sampled, runs = SampledTokens(3), SlotRuns()
    runs.begin(0, sampled.begin(3, by_rows=False))
    runs.on_frame(pb.StepFrame(slots=[0], token_ids=[7]))

    assert sampled.first(1) == (array("I", [7]), None)


def run_of(sampled: SampledTokens, prompt_tokens: int, token_ids: list[int], logprob: float) -> None:
    """Let a worker sample tokens after a prompt of this length."""
    run = sampled.begin(prompt_tokens, by_rows=False)
    run.token_ids.extend(token_ids)
    run.logprobs.extend([logprob] * len(token_ids))


def test_a_continued_sequence_has_the_tokens_of_both_workers() -> None:
    """What the first one sampled beyond the tokens that were continued, nobody was sent."""
    sampled = SampledTokens(3)
    run_of(sampled, 3, [7, 8, 99], -1.0)
    run_of(sampled, 5, [9, 10], -2.0)

    assert sampled.first(4) == (array("I", [7, 8, 9, 10]), array("f", [-1.0, -1.0, -2.0, -2.0]))


def test_a_repeated_sequence_keeps_what_was_sent() -> None:
    """With its first log-probabilities; only what comes after it is of the second worker."""
    sampled = SampledTokens(3)
    run_of(sampled, 3, [7, 8], -1.0)
    run_of(sampled, 3, [7, 8, 9], -2.0)

    assert sampled.first(3) == (array("I", [7, 8, 9]), array("f", [-1.0, -1.0, -2.0]))
