"""Responses requests become chat requests."""

from typing import Any

import pytest

from tests.coordinator.api.responses.requests import TOOL, responses_chat
from tokenwire.coordinator.api.responses.request import ResponsesRequest
from tokenwire.errors import InvalidRequest


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"conversation": "x"}, "conversation"),
        ({"prompt": {"id": "x"}}, "prompt"),
        ({"max_tokens": 5}, "max_tokens"),
        ({"n": 2}, "n"),
        ({"include": ["output.everything"]}, "include"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format"),
        ({"text": {"format": {"type": "json_object"}}, "structured_outputs": {"regex": "a"}}, "structured_outputs"),
    ],
)
def test_unsupported_fields_are_rejected_by_name(body: dict[str, Any], param: str) -> None:
    """Fields that would need storage, or OpenAI's own servers."""
    with pytest.raises(InvalidRequest) as raised:
        responses_chat(**body)

    assert raised.value.param == param


@pytest.mark.parametrize(
    ("body", "param"),
    [({"previous_response_id": "x"}, "previous_response_id"), ({"background": True}, "background")],
)
def test_what_needs_a_store_is_rejected_without_one(body: dict[str, Any], param: str) -> None:
    """The error names the field and the option; with a store, a background needs to be stored."""
    request = ResponsesRequest.model_validate({"input": "Hi", **body})
    request.check_storing(True)
    with pytest.raises(InvalidRequest, match="--enable-responses-store") as raised:
        request.check_storing(False)
    assert raised.value.param == param

    with pytest.raises(InvalidRequest, match="needs `store`"):
        ResponsesRequest.model_validate({"input": "Hi", "background": True, "store": False}).check_storing(True)


def test_harmless_fields_pass() -> None:
    """Fields without effect are accepted, because clients always send them."""
    responses_chat(
        store=True, metadata={"a": "b"}, user="me", service_tier="auto",
        include=["reasoning.encrypted_content", "file_search_call.results"],
        previous_response_id=None, background=False, parallel_tool_calls=True, truncation="disabled",
        reasoning={"effort": "low", "summary": "auto"}, prompt_cache_key="k", tool_choice="auto", tools=[],
    )  # fmt: skip


@pytest.mark.parametrize("verbosity", ["low", "medium", "high"])
def test_any_verbosity_passes(verbosity: str) -> None:
    """Agents send it by the model's name; templates do not support it."""
    assert responses_chat(text={"verbosity": verbosity}).messages == responses_chat().messages


def test_fields_have_their_counterparts_in_chat() -> None:
    """Every served field becomes chat's; vLLM's own are passed on."""
    request = responses_chat(
        max_output_tokens=7, temperature=0.5, top_p=0.9, truncation="auto", stream=True, reasoning={"effort": "low"},
        include=["message.output_text.logprobs"], top_logprobs=3, tools=[TOOL], parallel_tool_calls=False,
        tool_choice={"type": "function", "name": "f"},
        text={"format": {"type": "json_schema", "name": "n", "schema": {}}},
        top_k=5, seed=1, ignore_eos=True, stop=["x"], min_p=0.1, repetition_penalty=1.1,
    )  # fmt: skip

    assert request.model_dump(include={"max_completion_tokens", "temperature", "top_p", "truncate_prompt_tokens"}) == {
        "max_completion_tokens": 7,
        "temperature": 0.5,
        "top_p": 0.9,
        "truncate_prompt_tokens": -1,
    }
    assert (request.logprobs, request.top_logprobs, request.reasoning_effort, request.stream) == (True, 3, "low", True)
    assert request.tools == [
        {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "strict": None}}
    ]
    assert request.tool_choice == {"type": "function", "function": {"name": "f"}}
    assert request.parallel_tool_calls is False
    assert request.response_format is not None
    assert request.response_format.constraint() == {"json": {}}
    assert (request.top_k, request.seed, request.ignore_eos, request.stop) == (5, 1, True, ["x"])
