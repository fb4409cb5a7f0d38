"""POST /v1/responses."""

import json
from pathlib import Path
from typing import Any

from tests.coordinator.api.applications import served

BODY: dict[str, Any] = {"input": "Hi", "max_output_tokens": 6, "temperature": 0}


async def test_a_stream_ends_with_the_full_response(tmp_path: Path) -> None:
    """The same text, status and usage."""
    async with served(tmp_path) as client:
        full = (await client.post("/v1/responses", json=BODY)).json()
        stream = await client.post("/v1/responses", json={**BODY, "stream": True})

    last = stream.text.split("\n\n")[-2].partition("data: ")[2]
    streamed = json.loads(last)["response"]
    assert streamed["output"][0]["content"] == full["output"][0]["content"]
    assert (streamed["status"], full["status"]) == ("incomplete", "incomplete")
    assert streamed["usage"]["output_tokens"] == full["usage"]["output_tokens"] == 6
    assert full["id"].startswith("resp_")


async def test_a_header_names_tools_that_are_left_out(tmp_path: Path) -> None:
    """Those that only OpenAI's servers run; the reply comes all the same."""
    async with served(tmp_path) as client:
        answer = await client.post("/v1/responses", json={**BODY, "tools": [{"type": "mcp"}]})
        plain = await client.post("/v1/responses", json=BODY)

    assert (answer.status_code, answer.headers["X-Tokenwire-Tools-Left-Out"]) == (200, "mcp")
    assert not [name for name in plain.headers if name.startswith("x-tokenwire")]


async def test_no_response_is_stored(tmp_path: Path) -> None:
    """The error names it."""
    async with served(tmp_path) as client:
        missing = [
            await client.get("/v1/responses/resp_1"),
            await client.delete("/v1/responses/resp_1"),
            await client.get("/v1/responses/resp_1/input_items"),
            await client.post("/v1/responses/resp_1/cancel"),
        ]

    assert [answer.status_code for answer in missing] == [404] * 4
    assert all("resp_1" in answer.json()["error"]["message"] for answer in missing)
