"""Submissions, and the messages that are made of them."""

from array import array
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tokenwire.coordinator.fleet.sampled_tokens import SampledTokens
from tokenwire.coordinator.fleet.submission import PooledInputs, Submission
from tokenwire.protocol.packed_ids import prompt_ids
from tokenwire.v1 import inference_pb2 as pb


def test_a_message_has_everything_and_its_own_maximum_of_tokens() -> None:
    """The parameters that it shares with other prompts stay as they are."""
    params = pb.SamplingParams(temperature=0.5, max_tokens=100)
    own: dict[str, Any] = {
        "request_id": "r-1",
        "prompt_token_ids": [1, 2],
        "priority": -3,
        "cache_salt": "salt",
        "lora": pb.LoraAdapter(id=3, name="red"),
        "session_id": "talk",
        "data_parallel_rank": 0,
        "trace_headers": {"traceparent": "00"},
        "reasoning_ended": False,
        "reasoning_parser_kwargs_json": "{}",
        "resumed_after_ms": 5,
        "tenant": "search",
    }

    message = Submission(sampling_params=params, max_tokens=7, **own).message([4, 5])

    sent = pb.SamplingParams(temperature=0.5, max_tokens=7)
    assert message.submit == pb.Submit(slots=[4, 5], sampling_params=sent, **own)
    assert params.max_tokens == 100


def test_a_part_has_the_seeds_of_its_sequences() -> None:
    """Sequence i samples with seed + i, whichever part it belongs to; without a seed there is none."""
    seeded = Submission(sampling_params=pb.SamplingParams(temperature=1.0, seed=7))
    others = [
        pb.SamplingParams(temperature=1.0),
        pb.SamplingParams(temperature=0.0, seed=7),
        pb.SamplingParams(seed=-1),
    ]

    assert [replace(seeded, start=start).message().submit.sampling_params.seed for start in (0, 3)] == [7, 10]
    for params in others:
        assert Submission(sampling_params=params, start=3).message().submit.sampling_params == params
    assert seeded.sampling_params.seed == 7


def test_what_is_not_given_is_absent_from_the_message() -> None:
    """The engine's defaults apply, and the adapter with id 0 is none."""
    assert Submission("r", [1]).message().submit == pb.Submit(
        request_id="r", prompt_token_ids=[1], sampling_params=pb.SamplingParams()
    )


def test_ids_are_packed_for_workers_that_take_it() -> None:
    """Once: the same prompt, as bytes in place of numbers."""
    submit = Submission("r", [1, 2]).message(packs_ids=True).submit

    assert [*prompt_ids(submit)] == [1, 2]
    assert not submit.prompt_token_ids


def pooled(second_begins: Sequence[int] = ()) -> Submission:
    """Return three inputs to pool."""
    inputs = PooledInputs(pb.PoolingParams(task="embed", dtype="float32"), [2, 1, 3], second_begins)
    return Submission(request_id="r", prompt_token_ids=array("I", range(6)), max_tokens=0, pooled=inputs)


def test_inputs_are_sent_in_parts() -> None:
    """A part has the ids, lengths and types of its slots, from its start on."""
    whole = pooled([1, 0, 2])

    first, second = whole.message([7, 8]).pool, replace(whole, start=2, resumed_after_ms=9).message([7]).pool

    assert (list(first.slots), list(first.lengths), list(first.token_ids)) == ([7, 8], [2, 1], [0, 1, 2])
    assert (list(second.lengths), list(second.token_ids)) == ([3], [3, 4, 5])
    assert (list(first.second_begins), list(second.second_begins)) == ([1, 0], [2])
    assert (first.HasField("resumed_after_ms"), second.resumed_after_ms) == (False, 9)
    assert first.params == second.params == pb.PoolingParams(task="embed", dtype="float32")


def test_each_input_has_tokens_of_its_own() -> None:
    """The sequences of a prompt share theirs."""
    assert [replace(pooled(), start=start).prompt_tokens(2) for start in (0, 1, 2)] == [3, 4, 3]
    assert Submission(prompt_token_ids=[1, 2, 3]).prompt_tokens(5) == 3


def test_a_recorded_request_asks_for_log_probabilities() -> None:
    """Beside the tokens, or as rows where the worker knows no better; not if its client asks for them itself."""
    own, sampled = pb.SamplingParams(), [SampledTokens(1)]
    recorded = Submission(sampling_params=own, sampled=sampled)
    asked = [pb.SamplingParams(logprobs=2), pb.SamplingParams(logprob_token_ids=[5])]

    beside, rows = recorded.message([0]).submit, replace(recorded, by_rows=True).message([0]).submit
    assert (beside.sampled_logprobs, beside.sampling_params.HasField("logprobs")) == (True, False)
    assert (rows.sampled_logprobs, rows.sampling_params.HasField("logprobs")) == (False, True)
    assert not own.HasField("logprobs")
    for params in asked:
        for by_rows in (True, False):
            submit = Submission(sampling_params=params, sampled=sampled, by_rows=by_rows).message([0]).submit
            assert (submit.sampled_logprobs, submit.sampling_params) == (False, params)
