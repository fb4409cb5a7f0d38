"""Responses have SGLang's format."""

import json
from typing import Any

import pytest

from tests.coordinator.fakes import served_model
from tokenwire.coordinator.api.tokens.sglang_request import SglangRequest
from tokenwire.coordinator.api.tokens.sglang_response import SglangChoice, SglangChunks, finish_reason
from tokenwire.coordinator.generation.prompts import PreparedPrompt
from tokenwire.coordinator.generation.service import PreparedRequest
from tokenwire.coordinator.text.logprobs import ScoredPosition, ScoredToken
from tokenwire.coordinator.types import Finish, GenerationRequest, Prefill, TokenPrompt, WeightSpan
from tokenwire.v1 import inference_pb2 as pb

POSITION: ScoredPosition = [ScoredToken(5, "x", -0.5, 2), ScoredToken(6, "y", float("-inf"), 1)]
DONE = Finish("length", weight_versions=[WeightSpan("v1", 0, 1), WeightSpan("v2", 1, 2)])


def sglang_choice(**body: Any) -> SglangChoice:
    """Return a choice at its start."""
    api_request = SglangRequest.model_validate({"input_ids": [1, 2], **body})
    request = GenerationRequest("id", "digits", [TokenPrompt([1, 2])], pb.SamplingParams())
    return SglangChoice(
        api_request,
        PreparedRequest(request, served_model(), request.sampling, [PreparedPrompt([1, 2], None)], [9]),
        0,
        "id",
    )


@pytest.mark.parametrize(
    ("finish", "expected"),
    [
        (Finish("stop"), {"type": "stop", "matched": 6}),
        (Finish("stop", "END"), {"type": "stop", "matched": "END"}),
        (Finish("stop", 0), {"type": "stop", "matched": 0}),
        (Finish("length"), {"type": "length", "length": 2}),
        (Finish("abort"), {"type": "abort", "message": "Aborted"}),
    ],
)
def test_finish_reasons_are_objects(finish: Finish, expected: dict[str, Any]) -> None:
    """With what matched: for an end of sequence its id."""
    assert finish_reason(finish, [5, 6]) == expected


def test_a_response_has_the_fields_of_rollouts() -> None:
    """Text, ids, log-probabilities with ids, counts, the finish, and the last weight version."""
    one = sglang_choice(return_logprob=True, top_logprobs_num=2)
    one.prefilled(Prefill(1))
    one.add('"x', [5, 6], DONE, [POSITION, POSITION])

    answer = json.loads(one.render())

    assert (answer["text"], answer["output_ids"]) == ('"x', [5, 6])
    meta = answer["meta_info"]
    assert meta["output_token_logprobs"] == [[-0.5, 5, None]] * 2
    assert meta["output_top_logprobs"] == [[[-0.5, 5, None], [None, 6, None]]] * 2
    assert (meta["id"], meta["prompt_tokens"], meta["completion_tokens"], meta["cached_tokens"]) == ("id", 2, 2, 1)
    assert (meta["finish_reason"], meta["weight_version"]) == ({"type": "length", "length": 2}, "v2")


def test_prompt_logprobs_start_at_the_requested_position() -> None:
    """The first token has none."""
    one = sglang_choice(return_logprob=True, logprob_start_len=0)
    one.prefilled(Prefill(0, None, [None, POSITION]))
    one.add("", [5], DONE, [POSITION])

    assert json.loads(one.render())["meta_info"]["input_token_logprobs"] == [[None, 1, None], [-0.5, 5, None]]


def test_chunks_repeat_all_output_so_far() -> None:
    """As SGLang's do: the last one is the full response."""
    chunks = SglangChunks([streamed := sglang_choice(return_logprob=True)])
    chunks.delta(0, "a\n", [5], None, [POSITION])
    last = chunks.delta(0, "“", [6], DONE, [POSITION])
    whole = sglang_choice(return_logprob=True)
    whole.add("a\n“", [5, 6], DONE, [POSITION, POSITION])

    assert last.decode() == f"data: {whole.render()}\n\n"
    assert streamed.render() == whole.render()
