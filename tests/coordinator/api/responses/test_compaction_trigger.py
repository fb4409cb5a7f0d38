"""Compaction within POST /v1/responses, in front of a simulated engine; the agents' tests run Codex itself."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.coordinator.api.applications import served
from tests.coordinator.api.replies import events_of
from tests.coordinator.api.responses.requests import CALL, TOOL, user
from tests.summaries import REPLY_RULES, SUMMARY
from tokenwire.coordinator.api.responses.compaction_item import compaction_item

PATH = "/v1/responses"
TRIGGER = {"type": "compaction_trigger"}
SAID: list[dict[str, Any]] = [
    user("Name a river."),
    CALL,
    {"type": "function_call_output", "call_id": "c", "output": "Danube"},
    TRIGGER,
]


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server whose model writes summaries."""
    async with served(tmp_path, replies=REPLY_RULES, step_ms=0) as made:
        yield made


async def test_the_reply_is_one_item_with_the_summary(client: httpx.AsyncClient) -> None:
    """Streamed or not: the item, and nothing of how the model came to it."""
    body = {"input": SAID, "tools": [TOOL], "tool_choice": "auto", "store": False}
    whole = (await client.post(PATH, json=body)).json()
    events = events_of((await client.post(PATH, json={**body, "stream": True})).content)
    streamed = events[-1].data["response"]

    assert [event.kind.removeprefix("response.") for event in events] == [
        *("created", "in_progress", "output_item.added", "output_item.done", "completed")
    ]
    assert events[3].data["item"] == streamed["output"][0]
    for response in (whole, streamed):
        (item,) = response["output"]
        assert item == {**compaction_item(SUMMARY), "id": item["id"]}
        assert (response["status"], response["tool_choice"]) == ("completed", "auto")
        assert response["usage"]["output_tokens"] > len(SUMMARY)


async def test_what_is_returned_takes_the_place_of_the_rest(client: httpx.AsyncClient) -> None:
    """As the item of /v1/responses/compact does."""
    (item,) = (await client.post(PATH, json={"input": SAID})).json()["output"]
    answer = await client.post(PATH, json={"input": [user("Name a river."), item, user("Go on.")]})

    assert answer.json()["output"][0]["content"][0]["text"] == "It goes on from the summary."


async def test_a_session_has_the_summary_as_a_turn(tmp_path: Path) -> None:
    """With the message that it was to the model."""
    async with served(tmp_path, replies=REPLY_RULES, step_ms=0) as client:
        for stream in (False, True):
            await client.post("/sessions/s/v1/responses", json={"input": SAID, "stream": stream})
        nodes = (await client.get("/sessions/s/trajectory")).json()["nodes"]

    assert [node["message"]["content"].strip() for node in nodes] == [SUMMARY] * 2


async def test_a_summary_that_is_none_is_an_error(client: httpx.AsyncClient) -> None:
    """Cut off or empty, as an error or as the end of the stream."""
    for body, words in (({"max_output_tokens": 5}, "cut off after 5 tokens"), ({}, "wrote no summary")):
        said = [user("please write nothing"), TRIGGER]
        answer = await client.post(PATH, json={"input": said if not body else SAID, **body})
        streamed = await client.post(PATH, json={"input": said if not body else SAID, **body, "stream": True})
        last = events_of(streamed.content)[-1]

        assert answer.status_code >= 400
        assert words in answer.json()["error"]["message"]
        assert last.kind == "response.failed"
        assert words in last.data["response"]["error"]["message"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": [TRIGGER, user("Go on.")]}, "input"),
        ({"input": [TRIGGER]}, "input"),
        ({"input": SAID, "background": True}, "background"),
        ({"input": SAID, "include": ["message.output_text.logprobs"]}, "include"),
    ],
)
async def test_what_cannot_be_served_is_named(client: httpx.AsyncClient, body: dict[str, Any], param: str) -> None:
    """It is last, after something."""
    answer = await client.post(PATH, json=body)

    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
