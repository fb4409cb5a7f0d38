"""SGLang's contract: its names are translated to vLLM's, and responses have its format."""

import json
from typing import Any

import pytest

from tests.coordinator.fakes import served_model
from tokenwire.coordinator.api.tokens.sglang_request import SglangRequest
from tokenwire.coordinator.api.tokens.sglang_response import SglangChoice, SglangChunks, finish_reason
from tokenwire.coordinator.generation.prompts import PreparedPrompt
from tokenwire.coordinator.generation.service import PreparedRequest
from tokenwire.coordinator.text.logprobs import ScoredPosition, ScoredToken
from tokenwire.coordinator.types import Finish, GenerationRequest, Prefill, TextPrompt, TokenPrompt, WeightSpan
from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb

POSITION: ScoredPosition = [ScoredToken(5, "x", -0.5, 2), ScoredToken(6, "y", float("-inf"), 1)]
DONE = Finish("length", weight_versions=[WeightSpan("v1", 0, 1), WeightSpan("v2", 1, 2)])


def translated(sampling: dict[str, Any] | None = None, **body: Any) -> GenerationRequest:
    """Return the GenerationRequest of a request."""
    request = SglangRequest.model_validate({"input_ids": [5, 6], "sampling_params": sampling, **body})
    return request.to_generation("id", "s", 1)


def choice(**body: Any) -> SglangChoice:
    """Return a choice at its start."""
    asked = SglangRequest.model_validate({"input_ids": [1, 2], **body})
    request = GenerationRequest("id", "digits", [TokenPrompt([1, 2])], pb.SamplingParams())
    return SglangChoice(asked, PreparedRequest(request, served_model(), [PreparedPrompt([1, 2], None)]), 0, "id")


def test_names_are_translated() -> None:
    """Parameters with other names reach the worker under vLLM's."""
    request = translated(
        {
            **{"max_new_tokens": 7, "min_new_tokens": 2, "sampling_seed": 9, "no_stop_trim": True, "regex": "a+"},
            **{"temperature": 0.5, "top_k": 1 << 30, "stop": ["x"], "skip_special_tokens": False},
        },
        priority=3,
    )

    sampling = request.sampling
    assert (sampling.max_tokens, sampling.min_tokens, sampling.seed, sampling.top_k) == (7, 2, 9, 1 << 30)
    assert sampling.structured_outputs.regex == "a+"
    assert (request.text.stop, request.text.include_stop_str_in_output, request.text.unread) == (("x",), True, False)
    assert (request.priority, request.conversation_id, request.data_parallel_rank) == (-3, "s", 1)


def test_defaults_are_sglangs() -> None:
    """128 tokens, and no log-probabilities."""
    sampling = translated().sampling

    assert (sampling.max_tokens, sampling.temperature) == (128, 1.0)
    assert translated({}).sampling == sampling
    assert not sampling.HasField("logprobs")


@pytest.mark.parametrize(("start", "prompt"), [(-1, None), (0, 2)])
def test_prompt_logprobs_are_requested_only_if_returned(start: int, prompt: int | None) -> None:
    """logprob_start_len is the first position; -1 means none."""
    sampling = translated(return_logprob=True, top_logprobs_num=2, logprob_start_len=start).sampling

    assert sampling.logprobs == 2
    assert (sampling.prompt_logprobs if sampling.HasField("prompt_logprobs") else None) == prompt


def test_prompts_are_text_or_ids_one_or_many() -> None:
    """All four forms; a batch has a list as its response."""
    assert translated(text="a", input_ids=None).prompts == [TextPrompt("a")]
    assert translated(text=["a", "b"], input_ids=None).prompts == [TextPrompt("a"), TextPrompt("b")]
    assert translated(input_ids=[[1], [2]]).prompts == [TokenPrompt([1], "input_ids"), TokenPrompt([2], "input_ids")]
    assert SglangRequest.model_validate({"input_ids": [[1]]}).is_batch
    assert not SglangRequest.model_validate({"input_ids": [1]}).is_batch


NO_PROMPT: list[dict[str, Any]] = [{"text": "a"}, {"input_ids": None}, {"input_ids": []}]


@pytest.mark.parametrize("body", NO_PROMPT)
def test_exactly_one_kind_of_prompt_is_required(body: dict[str, Any]) -> None:
    """Neither both nor none."""
    with pytest.raises(InvalidRequest):
        translated(**body)


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
    one = choice(return_logprob=True, top_logprobs_num=2)
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
    one = choice(return_logprob=True, logprob_start_len=0)
    one.prefilled(Prefill(0, None, [None, POSITION]))
    one.add("", [5], DONE, [POSITION])

    assert json.loads(one.render())["meta_info"]["input_token_logprobs"] == [[None, 1, None], [-0.5, 5, None]]


def test_chunks_repeat_all_output_so_far() -> None:
    """As SGLang's do: the last one is the whole response."""
    chunks = SglangChunks([streamed := choice(return_logprob=True)])
    chunks.delta(0, "a\n", [5], None, [POSITION])
    last = chunks.delta(0, "“", [6], DONE, [POSITION])
    whole = choice(return_logprob=True)
    whole.add("a\n“", [5, 6], DONE, [POSITION, POSITION])

    assert last.decode() == f"data: {whole.render()}\n\n"
    assert streamed.render() == whole.render()
