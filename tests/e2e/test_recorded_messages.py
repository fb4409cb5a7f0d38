"""Messages of recorded nodes, by real parsers: as the client got them, also where no history keeps the turn."""

import json
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.scripted import REPLIES, scripted_service

PARAMETERS: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}
FUNCTION: dict[str, Any] = {"name": "get_weather", "parameters": PARAMETERS}
MESSAGES = [{"role": "user", "content": "Is it warm?"}]
CHAT: dict[str, Any] = {"messages": MESSAGES, "tools": [{"type": "function", "function": FUNCTION}]}
RECORDED: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", CHAT),
    "tokens": ("/v1/chat/completions/tokens", {**CHAT, "tokens": [65, 66, 67]}),
    "responses": ("/v1/responses", {"input": "Is it warm?", "tools": [{"type": "function", **FUNCTION}]}),
    "messages": (
        "/v1/messages",
        {
            "messages": MESSAGES,
            "max_tokens": 200,
            "tools": [{"name": FUNCTION["name"], "input_schema": PARAMETERS}],
        },
    ),
}
ENABLED = ("--enable-trajectories", "--token-history", "template")


def test_each_recorded_message_is_what_its_client_got(folder: Path) -> None:
    """Streamed and whole, in each dialect, rendered by the template alone, and after ids of the client's."""
    with (
        scripted_service(folder, {"calls": REPLIES["calls"]}, *ENABLED) as service,
        httpx.Client(base_url=service.url, timeout=60) as client,
    ):
        for name, (path, body) in RECORDED.items():
            for stream in (False, True):
                session = f"/sessions/{name}-{stream}"
                reply = client.post(session + path, json={"model": "calls", "stream": stream, **body})
                assert reply.status_code == 200, (name, reply.text)
                (node,) = client.get(f"{session}/trajectory").json()["nodes"]
                message = node["message"]
                assert message is not None, (name, stream)
                (call,) = message["tool_calls"]
                assert (message["role"], message["content"].strip()) == ("assistant", "Sure.")
                assert call["function"]["name"] == "get_weather"
                assert json.loads(call["function"]["arguments"]) == {"city": "Zürich", "days": 2}
        assert "Traceback" not in service.coordinator.log, service.coordinator.log
