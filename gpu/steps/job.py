"""A worker and a coordinator as two processes: models, chats of every kind, health and metrics."""

import asyncio
import json
import re
import time
from typing import Any

import httpx

from gpu.kit import Kit
from gpu.machine import describe_machine, nvidia_smi
from gpu.parts import Parts
from gpu.servers import RunningServer
from gpu.starts import PARSERS_OF_TOOLS, skipped_if_not_started
from tests.faults.long_replies import answer_to

NAME = "job"
LIMIT_S = 180

_MESSAGES = [{"role": "user", "content": "Name three fish."}]
_CHAT: dict[str, Any] = {"messages": _MESSAGES, "temperature": 0, "max_tokens": 32, "return_token_ids": True}
_COUNT = {
    "type": "object",
    "properties": {"count": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["count"],
}
_TOOL = {"type": "function", "function": {"name": "count_fish", "strict": True, "parameters": _COUNT}}
_SCHEMA = {"type": "json_schema", "json_schema": {"name": "count", "schema": _COUNT}}


def run(kit: Kit) -> dict[str, Any]:
    """Return what was answered, how fast, and how long both took to be ready."""
    parts = Parts(kit.out)
    with kit.tokenwire_worker(options=("--metrics-listen", "127.0.0.1:0")) as worker:
        with kit.coordinator([worker]) as coordinator:
            ready = {"worker_ready_s": worker.ready_s, "coordinator_ready_s": coordinator.ready_s}
            memory = nvidia_smi("memory.used")
            asyncio.run(_requests(kit, coordinator.address, parts))
            cpu = {"worker": worker.process.cpu_seconds(), "coordinator": coordinator.process.cpu_seconds()}
        with parts.part("tools") as found:
            asyncio.run(_tools(kit, worker, found))
    return {"machine": describe_machine(), "parts": parts.results, **ready, "cpu_seconds": cpu, "gpu_memory": memory}


async def _requests(kit: Kit, url: str, parts: Parts) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        with parts.part("models") as found:
            found["listed"] = [each["id"] for each in (await _get(client, "/v1/models")).json()["data"]]
            assert found["listed"] == [kit.model.name]
        with parts.part("chat") as found:
            plain = await answer_to(client, _CHAT, asyncio.Event())
            streamed = await answer_to(client, {**_CHAT, "stream": True}, asyncio.Event())
            found |= {"text": plain.text[0], "streamed": streamed.text[0]}
            found["equal"] = (streamed.text, streamed.token_ids) == (plain.text, plain.token_ids)
            assert plain.text[0]
            assert streamed.text[0]
            assert kit.on_cuda or found["equal"]  # a cached prompt may change the last bits of bfloat16
        with parts.part("n") as found:
            several = await answer_to(client, {**_CHAT, "n": 2, "temperature": 0.9, "seed": 3}, asyncio.Event())
            found["texts"] = several.text
            assert len(several.text) == 2
        with parts.part("stop") as found:
            await _stop(client, found)
        with parts.part("logprobs") as found:
            scored = await answer_to(client, {**_CHAT, "logprobs": True, "top_logprobs": 3}, asyncio.Event())
            found["first"] = scored.logprobs[0]
            assert len(scored.logprobs) == len(scored.token_ids[0])
            assert all(len(entry["top_logprobs"]) == 3 and entry["logprob"] <= 0 for entry in scored.logprobs)
        with parts.part("structured") as found:
            await _structured(client, found)
        with parts.part("token ids") as found:
            await _token_ids(kit, client, found)
        with parts.part("one stream") as found:
            await _one_stream(client, 512 if kit.on_cuda else 64, found)
        with parts.part("health and metrics") as found:
            await _health(client, found)


async def _get(client: httpx.AsyncClient, path: str) -> httpx.Response:
    response = await client.get(path)
    assert response.status_code == 200, response.text
    return response


async def _stop(client: httpx.AsyncClient, found: dict[str, Any]) -> None:
    """A piece of the reply as the stop string ends the same reply before it."""
    whole = (await answer_to(client, _CHAT, asyncio.Event())).text[0]
    stop = whole[len(whole) // 2 :][:6]
    stopped = await answer_to(client, {**_CHAT, "stop": [stop]}, asyncio.Event())
    found |= {"stop": stop, "text": stopped.text[0]}
    assert (stopped.finishes[0], stopped.stop_reason) == ("stop", stop)
    assert stop not in stopped.text[0]


async def _structured(client: httpx.AsyncClient, found: dict[str, Any]) -> None:
    pattern = r"(red|green|blue) [0-9]{3}"
    by_pattern = await answer_to(client, {**_CHAT, "structured_outputs": {"regex": pattern}}, asyncio.Event())
    found["regex"] = by_pattern.text[0]
    by_schema = await answer_to(client, {**_CHAT, "response_format": _SCHEMA}, asyncio.Event())
    found["schema"] = by_schema.text[0]
    assert re.fullmatch(pattern, by_pattern.text[0])
    assert 1 <= json.loads(by_schema.text[0])["count"] <= 9


async def _token_ids(kit: Kit, client: httpx.AsyncClient, found: dict[str, Any]) -> None:
    """The prompt's ids of a chat, sent as ids, give the same reply's ids."""
    response = await client.post("/v1/chat/completions", json=_CHAT)
    chat = response.json()
    body = {
        "token_ids": chat["prompt_token_ids"],
        "sampling_params": {"temperature": 0, "max_tokens": _CHAT["max_tokens"]},
    }
    generated = (await client.post("/inference/v1/generate", json=body)).json()["choices"][0]["token_ids"]
    expected = chat["choices"][0]["token_ids"]
    found |= {"ids": generated, "equal_to_chat": generated == expected}
    assert generated
    assert kit.on_cuda or generated == expected


async def _one_stream(client: httpx.AsyncClient, tokens: int, found: dict[str, Any]) -> None:
    body = {**_CHAT, "max_tokens": tokens, "ignore_eos": True, "stream": True}
    sent = time.monotonic()
    times: list[float] = []
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        async for line in response.aiter_lines():
            if line.startswith("data: {") and json.loads(line[6:])["choices"][0].get("token_ids"):
                times.append(time.monotonic())
    found |= {"tokens": tokens, "events": len(times), "first_token_s": round(times[0] - sent, 4)}
    found["tokens_per_second"] = round((tokens - 1) / (times[-1] - times[0]), 1)


async def _health(client: httpx.AsyncClient, found: dict[str, Any]) -> None:
    await _get(client, "/health")
    metrics = (await _get(client, "/metrics")).text
    (tokens,) = re.findall(r"^tokenwire_completion_tokens_total{.*} (\S+)$", metrics, re.MULTILINE)
    found["completion_tokens"] = float(tokens)
    assert found["completion_tokens"] > 100


async def _tools(kit: Kit, worker: RunningServer, found: dict[str, Any]) -> None:
    """A tool call through vLLM's parser, in a coordinator of its own: it may be missing in this vLLM."""
    with (
        skipped_if_not_started("a coordinator with a parser"),
        kit.coordinator([worker], options=PARSERS_OF_TOOLS, name="coordinator-parsers") as coordinator,
    ):
        async with httpx.AsyncClient(base_url=coordinator.address, timeout=60) as client:
            body = {**_CHAT, "tools": [_TOOL], "tool_choice": "required", "stream": True, "max_tokens": 100}
            called = await answer_to(client, body, asyncio.Event())
    found["arguments"] = called.tool
    assert 1 <= json.loads(called.tool)["count"] <= 9
