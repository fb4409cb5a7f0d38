"""Resumed replies are marked on every route, streamed and not; others are not."""

import asyncio
import json
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx

from tests.processes import Service, coordinator, simulated_worker

MESSAGES = [{"role": "user", "content": "Hi"}]
LONG = {"max_tokens": 150, "temperature": 0}
ROUTES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": MESSAGES, **LONG},
    "/v1/completions": {"prompt": "Hi", **LONG},
    "/v1/responses": {"input": "Hi", "max_output_tokens": 150, "temperature": 0},
    "/v1/messages": {"model": "simulated", "messages": MESSAGES, **LONG},
    "/inference/v1/generate": {"token_ids": [72], "sampling_params": LONG},
    "/generate": {"text": "Hi", "sampling_params": {"max_new_tokens": 150, "temperature": 0}},
}


async def send_to_route(client: httpx.AsyncClient, path: str, stream: bool) -> httpx.Response:
    """Send a request and return its response."""
    response = await client.post(path, json={**ROUTES[path], "stream": stream})
    assert response.status_code == 200, response.text
    return response


def marks(text: str) -> list[bool]:
    """Return, for each event of a stream, whether it is marked as resumed."""
    events = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")]
    return ['"resumed":true' in json.dumps(json.loads(event), separators=(",", ":")) for event in events]


async def test_resumed_replies_are_marked(tmp_path: Path) -> None:
    """The only worker with requests is killed: a header on full replies, a field at the end of streamed ones."""
    with ExitStack() as stack:
        options = ("--sim-step-ms", "20")
        first, address = stack.enter_context(simulated_worker(tmp_path, *options, name="first"))
        _, other = stack.enter_context(simulated_worker(tmp_path, *options, name="second"))
        listed = tmp_path / "workers"
        listed.write_text(address)
        process, url = stack.enter_context(coordinator(tmp_path, [f"file:{listed}"]))
        service = Service(process, url, [first], [address])
        kinds = [(path, stream) for path in ROUTES for stream in (True, False)]
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            requests = [asyncio.create_task(send_to_route(client, *kind)) for kind in kinds]
            await asyncio.to_thread(service.wait_slots, len(kinds))
            listed.write_text(f"{address}\n{other}")
            await asyncio.to_thread(process.wait_for, rf"worker {other}: .*, ready")
            first.signal(signal.SIGKILL)
            resumed = dict(zip(kinds, await asyncio.gather(*requests), strict=True))
            undisturbed = await asyncio.gather(*(send_to_route(client, *kind) for kind in kinds))
            plain = dict(zip(kinds, undisturbed, strict=True))

    for kind in kinds:
        _, stream = kind
        assert ("X-Tokenwire-Resumed" in resumed[kind].headers) is not stream, kind
        assert "X-Tokenwire-Resumed" not in plain[kind].headers
        assert not any(marks(plain[kind].text)), kind
        if stream:
            events = marks(resumed[kind].text)
            assert any(events[-2:]), (kind, resumed[kind].text[-500:])
            assert not any(events[:-2]), kind
