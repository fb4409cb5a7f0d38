"""POST /v1/responses/compact, in front of a simulated engine; tests/e2e/test_compaction.py uses real processes."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.coordinator.api.applications import served
from tests.coordinator.api.responses.requests import CALL, TOOL, user
from tests.summaries import REPLY_RULES, SUMMARY
from tokenwire.coordinator.api.responses.compaction_item import compaction_item, summary_message

COMPACT = "/v1/responses/compact"
SAID: list[dict[str, Any]] = [
    {"role": "developer", "content": "Be brief."},
    user("Name a river."),
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "One in Europe."}]},
    CALL,
    {"type": "function_call_output", "call_id": "c", "output": "Danube"},
    {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "Danube."}]},
    {"type": "message", "id": "msg_2", "role": "user", "content": [{"type": "input_text", "text": "How long is it?"}]},
]


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server without a store, whose model writes summaries."""
    async with served(tmp_path, replies=REPLY_RULES, step_ms=0) as made:
        yield made


async def compacted(client: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    """Return a compacted conversation."""
    answer = await client.post(COMPACT, json=body)
    assert answer.status_code == 200, answer.text
    response: dict[str, Any] = answer.json()
    return response


async def test_the_users_messages_stay_and_a_summary_takes_the_place_of_the_rest(client: httpx.AsyncClient) -> None:
    """Messages without an id get one; the summary is the model's, without space around it."""
    response = await compacted(client, input=SAID, instructions="Be kind.", tools=[TOOL])
    first, second, item = response["output"]

    assert (response["object"], response["id"][:5]) == ("response.compaction", "resp_")
    assert first["content"] == [{"type": "input_text", "text": "Name a river."}]
    assert (first["role"], first["id"][:4], second["id"]) == ("user", "msg_", "msg_2")
    assert (item["type"], item["id"][:4]) == ("compaction", "cmp_")
    assert item == {**compaction_item(SUMMARY), "id": item["id"]}
    assert response["usage"]["output_tokens"] == len(f"\n{SUMMARY}\n".encode()) + 1
    assert response["usage"]["input_tokens"] > 500


async def test_what_is_returned_is_the_next_input(client: httpx.AsyncClient) -> None:
    """Its prompt has the summary; compacted again, there is one item, whose summary is of the first one too."""
    once = await compacted(client, input=SAID)
    goes_on = [*once["output"], user("Go on.")]
    answer = (await client.post("/v1/responses", json={"input": goes_on})).json()
    again = await compacted(client, input=[*goes_on, *answer["output"]])

    assert answer["output"][0]["content"][0]["text"] == "It goes on from the summary."
    assert [item["type"] for item in again["output"]] == ["message"] * 3 + ["compaction"]
    assert "(summary-5040)" in summary_message(again["output"][-1], "")["content"]


async def test_a_text_is_a_message_of_the_user(client: httpx.AsyncClient) -> None:
    """As in other responses."""
    response = await compacted(client, input="Name a river.")
    assert response["output"][0]["content"] == [{"type": "input_text", "text": "Name a river."}]


async def test_tools_need_no_parser(client: httpx.AsyncClient) -> None:
    """None is called; those that only OpenAI runs are named."""
    answer = await client.post(COMPACT, json={"input": "Hi.", "tools": [TOOL, {"type": "web_search"}]})
    assert answer.headers["X-Tokenwire-Tools-Left-Out"] == "web_search"


@pytest.mark.parametrize(
    ("body", "param", "said"),
    [
        ({}, "input", "`input` or `previous_response_id` is required"),
        ({"input": []}, "input", "`input` or `previous_response_id` is required"),
        ({"input": ""}, "input", "`input` or `previous_response_id` is required"),
        ({"input": None}, "input", "`input` or `previous_response_id` is required"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input", r"input[0] is an item_reference"),
        ({"input": [{"role": "user"}]}, "input", "input[0].content"),
        ({"input": [{"type": "compaction"}]}, "input", "input[0].encrypted_content"),
        ({"previous_response_id": "resp_1"}, "previous_response_id", "this server stores no responses"),
        ({"input": "Hi.", "stream": True}, "stream", "`stream` is not supported"),
        ({"input": "Hi.", "background": True}, "background", "`background` is not supported"),
        ({"input": "Hi.", "temperature": 0.5}, "temperature", "`temperature` is not supported"),
        ({"input": "Hi.", "image": {"context_compression": "enabled"}}, "image", "`image` is not supported"),
        ({"input": "Hi.", "max_output_tokens": 0}, "max_output_tokens", "at least 1"),
        ({"input": "Hi.", "max_output_tokens": 9}, "input", "The summary was cut off after 9 tokens"),
    ],
)
async def test_what_cannot_be_compacted_is_named(
    client: httpx.AsyncClient, body: dict[str, Any], param: str, said: str
) -> None:
    """By a 400."""
    answer = await client.post(COMPACT, json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, param)
    assert said in error["message"]


async def test_fields_without_effect_change_nothing(client: httpx.AsyncClient) -> None:
    """OpenAI's, and defaults of other responses."""
    harmless = {"store": True, "metadata": {"a": "b"}, "user": "me", "stream": False, "service_tier": "flex"}
    cache = {"prompt_cache_key": "k", "prompt_cache_retention": "24h", "prompt_cache_options": None}
    response = await compacted(client, input="Hi.", **harmless, **cache, seed=7)
    assert len(response["output"]) == 2


async def test_a_conversation_without_a_summary_is_an_error_of_the_server(client: httpx.AsyncClient) -> None:
    """An item without one would lose the conversation; another try may succeed."""
    answer = await client.post(COMPACT, json={"input": "And then, please write nothing."})
    assert answer.status_code == 500
    assert answer.json()["error"]["message"] == "The model wrote no summary."
