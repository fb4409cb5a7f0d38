"""Streamed replies of ids, chunk by chunk."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.coordinator.api.applications import served
from tests.coordinator.api.openai.test_derender import CHAT_BACK, COMPLETION_BACK
from tests.coordinator.api.openai.test_render import ok

TEXT = "Zürich, 東京 – 👩‍👩‍👧!"


async def steps(client: httpx.AsyncClient, path: str, size: int, **fields: Any) -> list[dict[str, Any]]:
    """Send the bytes of the text in chunks of a size, with log-probabilities; return the responses."""
    token_ids, state, responses = list(TEXT.encode()), None, []
    for start in range(0, len(token_ids), size):
        part = token_ids[start : start + size]
        scores = {"content": [{"token_id": each, "logprob": -1} for each in part]}
        finish = "length" if start + size >= len(token_ids) else None
        choice = {"index": 0, "token_ids": part, "finish_reason": finish, "logprobs": scores}
        body = {"stream": True, "generate_chunk": {"request_id": "g", "choices": [choice]}, "stream_state": state}
        responses.append(await ok(client, path, {**body, **fields}))
        state = responses[-1]["stream_state"]
    return responses


@pytest.mark.parametrize("size", [1, 3, 100])
async def test_chunks_join_to_the_text(tmp_path: Path, size: int) -> None:
    """Whatever their size; the role comes once, and log-probabilities are of whole characters."""
    async with served(tmp_path) as client:
        chats = [each["chunk"]["choices"][0] for each in await steps(client, CHAT_BACK, size)]
        completions = [each["chunk"]["choices"][0] for each in await steps(client, COMPLETION_BACK, size)]

    assert "".join(choice["delta"]["content"] or "" for choice in chats) == TEXT
    assert "".join(choice["text"] for choice in completions) == TEXT
    assert [choice["delta"]["role"] for choice in chats] == ["assistant", *[None] * (len(chats) - 1)]
    assert [choice["finish_reason"] for choice in chats] == [*[None] * (len(chats) - 1), "length"]
    for choices in (chats, completions):
        tokens = [token for choice in choices for token in _texts(choice["logprobs"])]
        assert "".join(tokens) == TEXT


def _texts(logprobs: dict[str, Any]) -> list[str]:
    return logprobs["tokens"] if "tokens" in logprobs else [each["token"] for each in logprobs["content"]]


async def test_a_chunk_of_usage_needs_no_state(tmp_path: Path) -> None:
    """It has no choice."""
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    chunk = {"request_id": "g", "choices": [], "usage": usage}
    async with served(tmp_path) as client:
        step = await ok(client, CHAT_BACK, {"stream": True, "generate_chunk": chunk})
        counted = await ok(client, COMPLETION_BACK, {"stream": True, "generate_chunk": chunk, "prompt_tokens": 9})

    assert step["chunk"]["usage"].items() >= usage.items()
    assert counted["chunk"]["usage"]["total_tokens"] == 11


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"stream_state": {"prev_tokens": ["a"], "read_offset": 2}}, "stream_state"),
        ({"stream_state": {"prefix_offset": 1}}, "stream_state"),
        ({"stream_state": {"output_token_ids": [65]}}, "stream_state"),
        ({"stream_state": {"output_token_ids": [10**9], "output_chunk_lens": [1]}}, "stream_state"),
        ({"stream_state": {"last_tool_call_ids": ["a"]}}, "stream_state"),
        ({"stream_state": {"prev_tokens": ["a"] * 2000}}, "stream_state.prev_tokens"),
        ({"stream_state": {"prev_tokens": ["a" * 2000]}}, "stream_state"),
        ({"prompt_token_ids": [65] * 99}, "prompt_token_ids"),
        ({"generate_chunk": {"choices": [{"index": 0}, {"index": 1}]}}, "generate_chunk"),
    ],
)
async def test_states_are_checked(tmp_path: Path, fields: dict[str, Any], param: str) -> None:
    """A client may send anything as the state of a stream."""
    body = {"stream": True, "generate_chunk": {"choices": [{"index": 0, "token_ids": [65]}]}}
    async with served(tmp_path, max_model_len=64) as client:
        response = await client.post(CHAT_BACK, json={**body, **fields})

    assert (response.status_code, response.json()["error"]["param"]) == (400, param)
