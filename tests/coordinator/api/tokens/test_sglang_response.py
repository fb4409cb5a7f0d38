"""Responses have SGLang's format."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.coordinator.fakes import served_model
from tokenwire.coordinator.api.json_pieces import object_pieces
from tokenwire.coordinator.api.tokens.sglang_request import SglangRequest
from tokenwire.coordinator.api.tokens.sglang_response import SglangChoice, SglangChunks, finish_reason
from tokenwire.coordinator.generation.prompts import PreparedPrompt
from tokenwire.coordinator.generation.service import PreparedRequest
from tokenwire.coordinator.output.collect import CollectedChoice
from tokenwire.coordinator.text.logprobs import ScoredPosition, ScoredToken
from tokenwire.coordinator.types import Finish, GenerationRequest, Prefill, TokenPrompt, WeightSpan
from tokenwire.v1 import inference_pb2 as pb

POSITION = ScoredPosition.of(ScoredToken(5, "x", -0.5, 2), ScoredToken(6, "y", float("-inf"), 1))
DONE = Finish("length", weight_versions=[WeightSpan("v1", 0, 1), WeightSpan("v2", 1, 2)])


def sglang_choice(ids: Sequence[int] = (1, 2), **body: Any) -> SglangChoice:
    """Return a choice at its start."""
    api_request = SglangRequest.model_validate({"input_ids": [*ids], **body})
    request = GenerationRequest("id", "digits", [TokenPrompt(ids)], pb.SamplingParams())
    return SglangChoice(
        api_request,
        PreparedRequest(request, served_model(), request.sampling, [PreparedPrompt(ids, None)], [9]),
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

    answer = sglang_event(one)

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

    assert sglang_event(one)["meta_info"]["input_token_logprobs"] == [[None, 1, None], [-0.5, 5, None]]


def test_chunks_repeat_all_output_so_far() -> None:
    """As SGLang's do: the last one is the full response."""
    chunks = SglangChunks([streamed := sglang_choice(return_logprob=True)])
    chunks.delta(0, "a\n", [5], None, [POSITION])
    last = chunks.delta(0, "“", [6], DONE, [POSITION])
    made = CollectedChoice("a\n“", [], [5, 6], DONE, Prefill(0), [POSITION, POSITION])

    assert last == streamed.render()
    assert sglang_event(streamed) == whole_of(sglang_choice(return_logprob=True), made)


@pytest.mark.parametrize("n", [1, 2])
def test_a_long_prompt_is_rendered_once_in_pieces(n: int) -> None:
    """Later chunks repeat it, and are as if it were short, as is the full response."""
    body = {"return_logprob": True, "logprob_start_len": 1, "top_logprobs_num": 2, "sampling_params": {"n": n}}
    prefill, ids = Prefill(0, None, [None, *[POSITION] * 4999]), [7] * 5000
    long = sglang_choice(ids, **body)
    long.prefilled(prefill)
    long.add("a", [5], None, [POSITION])
    first = long.render()
    assert not isinstance(first, bytes)
    pieces = list(first)
    assert max(map(len, pieces)) < 100_000
    long.add("b", [6], DONE, [POSITION])
    last = long.render()
    assert isinstance(last, bytes)

    made = CollectedChoice("ab", [], [5, 6], DONE, prefill, [POSITION, POSITION])
    opening = json.loads(b"".join(pieces).removeprefix(b"data: "))
    assert json.loads(last.removeprefix(b"data: ")) == whole_of(sglang_choice(ids, **body), made)
    assert opening["meta_info"]["input_token_logprobs"] == [[-0.5, 5, None]] * 4999
    assert (opening["text"], opening["meta_info"]["output_token_logprobs"]) == ("a", [[-0.5, 5, None]])


def sglang_event(choice: SglangChoice) -> Any:
    """Return the event of a choice with a short prompt."""
    event = choice.render()
    assert isinstance(event, bytes)
    assert event.endswith(b"\n\n")
    return json.loads(event.removeprefix(b"data: "))


def whole_of(choice: SglangChoice, made: CollectedChoice) -> Any:
    """Return the complete choice of a full response."""
    return json.loads(b"".join(object_pieces(choice.whole(made))))
