"""Requests rendered for /inference/v1/generate."""

from pathlib import Path
from typing import Any

import httpx

from tests.coordinator.api.applications import served
from tokenwire.coordinator.output.settings import ApiSettings

CHAT, COMPLETION = "/v1/chat/completions/render", "/v1/completions/render"
TALK = [{"role": "user", "content": "Hi"}]
GENERATE = "/inference/v1/generate"


async def ok(client: httpx.AsyncClient, path: str, body: Any) -> Any:
    """Return the JSON of a response that is no error."""
    response = await client.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


async def test_a_rendered_chat_generates_the_chats_ids(tmp_path: Path) -> None:
    """With the same parameters; it can be sent on as it is, streamed or not."""
    body = {"messages": TALK, "seed": 7, "temperature": 0.7, "max_tokens": 9, "n": 2, "logprobs": True}
    async with served(tmp_path) as client:
        rendered = await ok(client, CHAT, body)
        generated = await ok(client, GENERATE, rendered)
        chat = await ok(client, "/v1/chat/completions", {**body, "return_token_ids": True})

    assert rendered["token_ids"] == chat["prompt_token_ids"]
    assert [choice["token_ids"] for choice in generated["choices"]] == [each["token_ids"] for each in chat["choices"]]
    assert generated["request_id"] == f"generate-tokens-{rendered['request_id']}"
    assert all(len(choice["logprobs"]["content"]) == 9 for choice in generated["choices"])


async def test_nothing_is_generated(tmp_path: Path) -> None:
    """Rendering takes no worker."""
    async with served(tmp_path, api=ApiSettings()) as client:
        await ok(client, CHAT, {"messages": TALK})
        ((worker,),) = [each["workers"] for each in (await client.get("/status.json")).json()["processes"]]

    assert worker["tokens"] == 0


async def test_each_prompt_of_a_completion_is_a_request_of_its_own(tmp_path: Path) -> None:
    """With an id of its own, if there are several."""
    async with served(tmp_path) as client:
        texts = await ok(client, COMPLETION, {"prompt": ["a", "bc"], "request_id": "mine"})
        ids = await ok(client, COMPLETION, {"prompt": [65, 66], "request_id": "mine"})

    assert [each["token_ids"] for each in texts] == [[97], [98, 99]]
    assert [each["request_id"] for each in texts] == ["cmpl-mine-0", "cmpl-mine-1"]
    assert [(each["request_id"], each["token_ids"]) for each in ids] == [("cmpl-mine", [65, 66])]


async def test_fields_of_the_request_are_passed_on(tmp_path: Path) -> None:
    """Those that /inference/v1/generate has too."""
    body = {
        "messages": TALK, "model": "simulated", "stream": True, "stream_options": {"include_usage": True},
        "cache_salt": "salt", "priority": 3, "include_reasoning": False,
    }  # fmt: skip
    async with served(tmp_path) as client:
        rendered = await ok(client, CHAT, body)
        plain = await ok(client, CHAT, {"messages": TALK})

    assert (rendered["model"], plain["model"]) == ("simulated", None)
    assert (rendered["stream"], rendered["cache_salt"], rendered["priority"]) == (True, "salt", 3)
    assert rendered["stream_options"] == {"include_usage": True, "continuous_usage_stats": False}
    assert (plain["stream"], plain["stream_options"]) == (False, None)
    assert (rendered["reasoning_ended"], plain["reasoning_ended"]) == (True, None)


async def test_limits_of_weights_are_passed_on(tmp_path: Path) -> None:
    """Those of the body, and those of its header; without any the request is as vLLM's."""
    async with served(tmp_path) as client:
        limited = await ok(client, CHAT, {"messages": TALK, "max_weight_lag": 0})
        client.headers["X-Min-Weight-Version"] = "step_9"
        labelled = await ok(client, CHAT, {"messages": TALK})

    assert limited["max_weight_lag"] == 0
    assert "min_weight_version" not in limited
    assert labelled["min_weight_version"] == "step_9"


async def test_a_further_turn_reuses_its_ids(tmp_path: Path) -> None:
    """Of a conversation with an id, as when it is generated."""
    async with served(tmp_path) as client:
        body = {"messages": TALK, "session_id": "s", "return_token_ids": True, "max_tokens": 5}
        first = await ok(client, "/v1/chat/completions", body)
        (choice,) = first["choices"]
        talk = [*TALK, choice["message"], {"role": "user", "content": "And?"}]
        rendered = await ok(client, CHAT, {"messages": talk, "session_id": "s", "return_token_offsets": True})

    known = first["prompt_token_ids"] + choice["token_ids"]
    assert rendered["token_ids"][: len(known)] == known
    assert rendered["token_offsets"] is None


async def test_a_message_renders_as_the_chat_that_it_becomes(tmp_path: Path) -> None:
    """Anthropic's format, for routers that get its requests."""
    async with served(tmp_path) as client:
        message = await ok(
            client,
            "/v1/messages/render",
            {"model": "simulated", "system": "Be brief.", "messages": TALK, "max_tokens": 4},
        )
        chat = await ok(client, CHAT, {"messages": [{"role": "system", "content": "Be brief."}, *TALK]})

    assert message["token_ids"] == chat["token_ids"]
    assert message["sampling_params"]["max_tokens"] == 4


async def test_what_cannot_be_rendered_is_rejected(tmp_path: Path) -> None:
    """With vLLM's message for beam search."""
    async with served(tmp_path) as client:
        rejected = await client.post(CHAT, json={"messages": TALK, "use_beam_search": True})
        unsupported = await client.post(COMPLETION, json={"prompt": "a", "suffix": "b"})

    assert rejected.json()["error"]["message"] == "Beam search is not supported by the render endpoint"
    assert (unsupported.status_code, unsupported.json()["error"]["param"]) == (400, "suffix")
