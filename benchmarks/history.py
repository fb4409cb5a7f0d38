"""How often multi-turn prompts mismatch the ids of earlier turns, and how much of them the engine has cached."""

import asyncio
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import httpx

from benchmarks.processes import measured

_TURNS = 4
_TOKENS = 40
_AT_A_TIME = 32
_BLOCK = 32
_TOPICS = ("rivers", "bread", "comets", "chess", "glass", "bees", "maps", "tides", "ink", "wolves")


@dataclass(slots=True)
class HistoryRow:
    """The conversations of one mode."""

    token_history: str
    conversations: int
    following_turns: int = 0
    """Turns that have one before them."""
    mismatched: int = 0
    """Those whose prompt does not begin with the last prompt and completion."""
    mismatched_percent: float = 0.0
    old_tokens: int = 0
    """Tokens of all prompts that earlier turns had computed."""
    cached_percent: float = 0.0
    """How many of these the engine found in its cache."""


def run(conversations: int) -> Iterator[dict[str, Any]]:
    """Hold conversations at temperature 1.0 with the embedded model on vLLM, in either mode; yield a row each."""
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
    engine = ["--dtype", "float32", "--enforce-eager", "--max-model-len", "2048", "--block-size", str(_BLOCK)]
    with measured(["serve", "--port", "0", "--enable-prompt-tokens-details", "--", *engine]) as server:
        url = server.wait_for(r"is ready: (http://\S+?:\d+)", timeout_s=400.0)[1]
        for mode in ("template", "exact"):
            yield asdict(asyncio.run(_hold_all(url, mode, conversations)))


async def _hold_all(url: str, mode: str, conversations: int) -> HistoryRow:
    row = HistoryRow(mode, conversations)
    cached: list[int] = []
    async with httpx.AsyncClient(base_url=url, timeout=600) as client:
        room = asyncio.Semaphore(_AT_A_TIME)
        await asyncio.gather(*(_hold(client, room, row, number, cached) for number in range(conversations)))
    row.mismatched_percent = 100 * row.mismatched / row.following_turns
    row.cached_percent = 100 * sum(cached) / row.old_tokens
    return row


async def _hold(
    client: httpx.AsyncClient, room: asyncio.Semaphore, row: HistoryRow, number: int, cached: list[int]
) -> None:
    # Another salt in each mode: neither finds what the other has cached.
    body = {"temperature": 1.0, "max_tokens": _TOKENS, "return_token_ids": True, "token_history": row.token_history}
    body["cache_salt"] = f"{row.token_history} {number}"
    messages = [{"role": "user", "content": f"Tell me fact number {number} about {_TOPICS[number % len(_TOPICS)]}."}]
    before: list[int] = []
    for turn in range(_TURNS):
        async with room:
            response = await client.post(
                "/v1/chat/completions", json={**body, "messages": messages, "seed": number * _TURNS + turn}
            )
        if response.status_code != httpx.codes.OK:
            raise RuntimeError(f"conversation {number}, turn {turn}: {response.text}")
        answer = response.json()
        prompt, choice = answer["prompt_token_ids"], answer["choices"][0]
        if before:
            row.following_turns += 1
            row.mismatched += prompt[: len(before)] != before
            row.old_tokens += len(before)
            cached.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
        before = prompt + choice["token_ids"]
        messages += [choice["message"], {"role": "user", "content": f"And what else, {turn}?"}]
