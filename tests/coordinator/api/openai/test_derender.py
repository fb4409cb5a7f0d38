"""Whole replies of ids as chat completions and completions."""

from pathlib import Path
from typing import Any

import pytest

from tests.coordinator.api.applications import served
from tests.coordinator.api.openai.test_render import CHAT, GENERATE, TALK, ok
from tokenwire.coordinator.output.settings import ApiSettings

CHAT_BACK, COMPLETION_BACK = "/v1/chat/completions/derender", "/v1/completions/derender"


def reply_of_bytes(text: str, **fields: Any) -> dict[str, Any]:
    """Return a reply whose ids are the bytes of a text."""
    return {"request_id": "g", "choices": [{"index": 0, "token_ids": list(text.encode()), **fields}]}


async def test_a_rendered_and_generated_chat_derenders_to_the_chat(tmp_path: Path) -> None:
    """Text, log-probabilities, finish and usage."""
    body = {"messages": TALK, "temperature": 0, "max_tokens": 9, "logprobs": True, "top_logprobs": 2, "stop": ["e"]}
    async with served(tmp_path) as client:
        rendered = await ok(client, CHAT, body)
        generated = await ok(client, GENERATE, rendered)
        ids = rendered["token_ids"]
        back = {
            "generate_response": generated,
            "prompt_tokens": len(ids),
            "prompt_token_ids": ids,
            "chat_request": body,
        }
        derendered = await ok(client, CHAT_BACK, back)
        chat = await ok(client, "/v1/chat/completions", body)

    for response in (derendered, chat):
        del response["id"], response["created"]
    assert derendered == chat


async def test_replies_of_several_prompts_are_one_completion(tmp_path: Path) -> None:
    """Numbered on, with usage of all."""
    async with served(tmp_path) as client:
        body = {"generate_responses": [reply_of_bytes("one"), reply_of_bytes("two")], "prompt_tokens": [1, 2]}
        completion = await ok(client, COMPLETION_BACK, body)

    assert [(choice["index"], choice["text"]) for choice in completion["choices"]] == [(0, "one"), (1, "two")]
    assert (completion["usage"]["prompt_tokens"], completion["usage"]["completion_tokens"]) == (3, 6)


async def test_text_ends_before_what_ended_it(tmp_path: Path) -> None:
    """A stop string, or a stop token, unless they are to be included."""
    async with served(tmp_path) as client:

        async def text_of(request: dict[str, Any], **ending: Any) -> str:
            body = {
                "generate_responses": [reply_of_bytes("one two", **ending)],
                "completion_request": {"prompt": "a", **request},
            }
            text: str = (await ok(client, COMPLETION_BACK, body))["choices"][0]["text"]
            return text

        stop = {"finish_reason": "stop", "stop_reason": "two"}
        token = {"finish_reason": "stop", "stop_reason": ord("o")}
        assert await text_of({"stop": ["two"]}, **stop) == "one "
        assert await text_of({"stop": ["two"], "include_stop_str_in_output": True}, **stop) == "one two"
        assert await text_of({}, **token) == "one tw"
        assert await text_of({"include_stop_str_in_output": True}, **token) == "one two"
        assert await text_of({}, finish_reason="length") == "one two"


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT_BACK, {}, "generate_response"),
        (CHAT_BACK, {"stream": True}, "generate_chunk"),
        (CHAT_BACK, {"generate_response": {"choices": [{"index": 0}]}}, "token_ids"),
        (CHAT_BACK, {"generate_response": {"choices": [{"index": 0, "token_ids": [10**9]}]}}, "token_ids"),
        (CHAT_BACK, {"generate_response": {"choices": [{"index": 0, "token_ids": [65] * 99}]}}, "token_ids"),
        (
            CHAT_BACK,
            {"generate_response": {**reply_of_bytes("a"), "output_mode": "text"}},
            "generate_response.output_mode",
        ),
        (CHAT_BACK, {"generate_response": reply_of_bytes("a"), "prompt_token_ids": [10**9]}, "prompt_token_ids"),
        (CHAT_BACK, {"generate_response": reply_of_bytes("a"), "chat_request": {"messages": []}}, "messages"),
        (
            CHAT_BACK,
            {"generate_response": reply_of_bytes("a", logprobs={"content": [{"token_id": 10**9, "logprob": 0}]})},
            "logprobs",
        ),
        (COMPLETION_BACK, {}, "generate_responses"),
        (COMPLETION_BACK, {"generate_responses": []}, "generate_responses"),
        (COMPLETION_BACK, {"generate_responses": [reply_of_bytes("a")], "prompt_tokens": [1, 2]}, "prompt_tokens"),
        (COMPLETION_BACK, {"generate_responses": [reply_of_bytes("a")], "prompt_tokens": 1}, "prompt_tokens"),
        (COMPLETION_BACK, {"generate_responses": [reply_of_bytes("a")], "prompt_token_ids": [1]}, "prompt_token_ids"),
    ],
)
async def test_errors_name_their_field(tmp_path: Path, path: str, body: dict[str, Any], param: str) -> None:
    """With status 400."""
    async with served(tmp_path, max_model_len=64) as client:
        response = await client.post(path, json=body)

    assert (response.status_code, response.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize(
    ("choice", "param"),
    [
        ({"token_ids": [97]}, "choices"),
        ({"token_ids": [97] * 2000}, "token_ids"),
        ({"token_ids": [97], "logprobs": {"content": [{"token_id": 97, "logprob": -1}] * 1000}}, "logprobs"),
    ],
)
async def test_replies_that_take_too_much_are_refused(tmp_path: Path, choice: dict[str, Any], param: str) -> None:
    """By what takes most, before any of it is decoded."""
    choices = [{"index": 0, **choice}] * (100 if param == "choices" else 1)
    async with served(tmp_path, api=ApiSettings(max_request_bytes=100 * 1024)) as client:
        response = await client.post(COMPLETION_BACK, json={"generate_responses": [{"choices": choices}]})

    assert response.status_code == 400
    assert response.json()["error"]["param"] == param
    assert "--max-request-mb" in response.json()["error"]["message"]
