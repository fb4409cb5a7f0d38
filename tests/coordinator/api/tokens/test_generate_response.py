"""Responses of /inference/v1/generate have the field names of all clients."""

import json
from typing import Any

import pytest

from tests.coordinator.fakes import served_model
from tokenwire.coordinator.api.tokens.generate_request import GenerateRequest
from tokenwire.coordinator.api.tokens.generate_response import GenerateChunks, generate_logprobs
from tokenwire.coordinator.generation.prompts import PreparedPrompt
from tokenwire.coordinator.generation.service import PreparedRequest
from tokenwire.coordinator.text.logprobs import ScoredPosition, ScoredToken
from tokenwire.coordinator.types import Finish, GenerationRequest, Prefill, TokenPrompt, Usage, WeightSpan
from tokenwire.errors import WorkerLost
from tokenwire.v1 import inference_pb2 as pb

POSITION = ScoredPosition.of(ScoredToken(5, "é", -0.5, 2), ScoredToken(6, "y", -0.25, 1))
NAN = float("nan")


def generate_chunks(usage_details: bool = False, sampling: dict[str, Any] | None = None, **body: Any) -> GenerateChunks:
    """Return the chunks of two choices."""
    api_request = GenerateRequest.model_validate({"token_ids": [1, 2], "sampling_params": sampling or {}, **body})
    request = GenerationRequest("id", "digits", [TokenPrompt([1, 2])], pb.SamplingParams(), n=2)
    prepared = PreparedRequest(request, served_model(), request.sampling, [PreparedPrompt([1, 2], None)], [9])
    return GenerateChunks(api_request, prepared, usage_details)


def event_of(data: bytes) -> Any:
    """Return the object of one event."""
    head, _, rest = data.decode().partition("data: ")
    assert (head, rest[-2:]) == ("", "\n\n")
    return json.loads(rest)


def test_an_entry_has_the_names_of_all_versions() -> None:
    """A token as "token_id:N" and as a number, null bytes, the rank; the same for the most likely ones."""
    (entry,) = generate_logprobs([POSITION], 2, shows_text=False)["content"]

    sampled = {"token": "token_id:5", "token_id": 5, "logprob": -0.5, "bytes": None, "rank": 2}
    other = {"token": "token_id:6", "token_id": 6, "logprob": -0.25, "bytes": None, "rank": 1}
    assert entry == {**sampled, "top_logprobs": [sampled, other]}


@pytest.mark.parametrize(("top", "shown"), [(0, [5]), (1, [5]), (2, [5, 6]), (-1, [5, 6])])
def test_the_token_itself_is_always_included(top: int, shown: list[int]) -> None:
    """As in vLLM, 0 returns the token alone."""
    (entry,) = generate_logprobs([POSITION], top, shows_text=False)["content"]

    assert [other["token_id"] for other in entry["top_logprobs"]] == shown


def test_text_mode_names_tokens_by_their_text() -> None:
    """With bytes, as in chat."""
    (entry,) = generate_logprobs([POSITION], 1, shows_text=True)["content"]

    assert (entry["token"], entry["token_id"], entry["bytes"]) == ("é", 5, [195, 169])


@pytest.mark.parametrize("logprob", [NAN, float("-inf")])
def test_every_logprob_is_valid_json(logprob: float) -> None:
    """NaN and minus infinity become the floor; an invalid rank is null."""
    position = ScoredPosition.of(ScoredToken(5, "x", logprob, 0))
    (entry,) = generate_logprobs([position], 1, shows_text=False)["content"]

    assert (entry["logprob"], entry["rank"]) == (-9999.0, None)


def test_a_delta_is_ids() -> None:
    """A chunk has one choice with its new ids, and nulls for later fields."""
    chunk = event_of(generate_chunks().delta(1, "", [7, 8], None))

    assert (chunk["request_id"], chunk["output_mode"], chunk["usage"]) == ("id", "tokens", None)
    assert chunk["choices"] == [
        {
            "index": 1,
            "token_ids": [7, 8],
            "logprobs": None,
            "finish_reason": None,
            "stop_reason": None,
            "routed_experts": None,
            "sampling_mask": None,
            "weight_versions": None,
        }
    ]


def test_the_last_delta_has_the_finish() -> None:
    """The reason, what matched, and the weight versions."""
    finish = Finish("stop", "END", weight_versions=[WeightSpan("v1", 0, 2)])
    (choice,) = event_of(generate_chunks(output_mode="text").delta(0, "“\n", [7], finish))["choices"]

    assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == ("“\n", "stop", "END")
    assert choice["weight_versions"] == [{"version": "v1", "start": 0, "end": 2}]


def test_logprobs_come_with_their_ids() -> None:
    """One entry for each new id, none for a choice that ends without one."""
    writer = generate_chunks(sampling={"logprobs": 1})

    assert len(event_of(writer.delta(0, "", [5], None, [POSITION]))["choices"][0]["logprobs"]["content"]) == 1
    assert event_of(writer.delta(0, "", [], Finish("abort")))["choices"][0]["logprobs"] == {"content": []}


def test_the_prompt_comes_once() -> None:
    """In the stream's first chunk, if requested."""
    writer = generate_chunks(return_token_ids=True)

    assert event_of(writer.delta(1, "", [7], None))["prompt_token_ids"] == [1, 2]
    assert "prompt_token_ids" not in event_of(writer.delta(0, "", [7], None))


def test_usage_counts_each_choice_and_then_all() -> None:
    """Continuous usage is per choice; the closing chunk has no choices, and cached tokens."""
    writer = generate_chunks(True, stream=True, stream_options={"include_usage": True, "continuous_usage_stats": True})
    writer.prefilled(0, Prefill(16))
    writer.delta(0, "", [7, 8], None)

    assert event_of(writer.delta(0, "", [9], None))["usage"]["completion_tokens"] == 3
    closing = event_of(writer.closing(Usage(2, 3)))
    assert closing["choices"] == []
    assert closing["usage"]["prompt_tokens_details"] == {"cached_tokens": 16}
    assert generate_chunks().closing(Usage(2, 3)) == b""


def test_an_error_mid_stream_is_an_event() -> None:
    """In OpenAI's format."""
    assert event_of(generate_chunks().error(WorkerLost("gone")))["error"]["code"] == 503
