"""Log-probabilities and structured outputs at many streams, `vllm serve` and tokenwire.

Both servers stay up, with a share of the GPU each, and are loaded in turn: an idle engine computes nothing, and these
sequences are short. Random weights write any text that a grammar allows, so the grammars here bound what they allow;
and whitespace between JSON's tokens is not allowed, or most of it would be that.
"""

import json
import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from gpu.contenders import CONTENDERS, Contender
from gpu.gpu_samples import sampled
from gpu.kit import Kit
from gpu.parts import Parts
from gpu.step import Skipped
from gpu.streams import Flood, StreamedReply, reply_of, streamed_chat, timings, words

NAME = "heavy_outputs"
LIMIT_S = 200

_RESERVE_S = 10
_STREAMS, _REQUESTS, _CLIENTS = 256, 256, 4
_DRY_STREAMS, _DRY_REQUESTS, _DRY_CLIENTS = 4, 6, 2
_TOKENS, _DRY_TOKENS, _MOST_TOKENS = 128, 16, 400
_UNTIMED = 4
_PATH = "/v1/chat/completions"
_TOP = 5
_REGEX = r"[0-9]{3}-[0-9]{4} (yes|no|maybe) [a-f0-9]{32}"
_SIZES = ("small", "medium", "large")
_WORD = {"type": "string", "pattern": "^[a-z]{4,12}$"}
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": _WORD,
        "size": {"enum": list(_SIZES)},
        "fresh": {"type": "boolean"},
        "tags": {"type": "array", "items": _WORD, "minItems": 3, "maxItems": 3},
        "address": {"type": "object", "properties": {"street": _WORD}, "required": ["street"]},
    },
    "required": ["name", "size", "fresh", "tags", "address"],
}
for _part in (_SCHEMA, _SCHEMA["properties"]["address"]):
    _part["additionalProperties"] = False


@dataclass(frozen=True, slots=True)
class OutputCase:
    """A kind of output, and what a reply of it must be."""

    fields: Mapping[str, Any]
    is_valid: Callable[[StreamedReply], bool]
    free: bool = False
    """Whether nothing but its length ends it."""


def _has_logprobs(reply: StreamedReply) -> bool:
    rows = reply.logprobs
    # The sampled token is one of the top ones or beside them.
    return len(rows) == reply.usage.get("completion_tokens") and all(
        len(row["top_logprobs"]) in (_TOP, _TOP + 1) for row in rows
    )


def fits_schema(text: str) -> bool:
    """Return whether a text is JSON of the schema; for this schema only."""
    try:
        found = json.loads(text)
    except ValueError:
        return False
    if not isinstance(found, dict) or set(found) != set(_SCHEMA["required"]):
        return False
    tags, address = found["tags"], found["address"]
    if not isinstance(tags, list) or len(tags) != 3 or not isinstance(address, dict) or set(address) != {"street"}:
        return False
    strings = [found["name"], *tags, address["street"]]
    return (
        all(isinstance(each, str) and re.fullmatch("[a-z]{4,12}", each) for each in strings)
        and found["size"] in _SIZES
        and isinstance(found["fresh"], bool)
    )


CASES = {
    "plain": OutputCase({}, lambda reply: reply.finish_reason == "length", free=True),
    "logprobs": OutputCase({"logprobs": True, "top_logprobs": _TOP}, _has_logprobs, free=True),
    "json schema": OutputCase(
        {"response_format": {"type": "json_schema", "json_schema": {"name": "thing", "schema": _SCHEMA}}},
        lambda reply: fits_schema(reply.text),
    ),
    "regex": OutputCase(
        {"structured_outputs": {"regex": _REGEX}}, lambda reply: bool(re.fullmatch(_REGEX, reply.text))
    ),
}


def run(kit: Kit) -> dict[str, Any]:
    """Run each case on both servers, in turn."""
    deadline = time.monotonic() + (LIMIT_S if kit.on_cuda else 5 * LIMIT_S) - _RESERVE_S
    parts = Parts(kit.out)
    with Flood(_CLIENTS if kit.on_cuda else _DRY_CLIENTS) as flood, ExitStack() as stack:
        contenders = _start(kit, stack)
        longest_s = 0.0
        for number, (name, case) in enumerate(CASES.items()):
            for index, contender in enumerate(contenders if number % 2 else reversed(contenders)):
                with parts.part(f"{contender.name}, {name}") as found:
                    started = time.monotonic()
                    # A case begins only with time for both servers: on one alone it compares nothing.
                    if deadline - started < longest_s * (len(contenders) - index):
                        raise Skipped(f"{deadline - started:.0f} s are left")
                    found |= _measure(kit, flood, contender, name, case)
                    longest_s = max(longest_s, time.monotonic() - started)
        ready_s = {contender.name: contender.ready_s for contender in contenders}
    return {"model": kit.medium.name, "ready_s": ready_s, "parts": parts.results}


def _start(kit: Kit, stack: ExitStack) -> list[Contender]:
    """Start both at the same time; with a size given for its cache, an engine does not mind the other's memory."""
    structured = json.dumps({"backend": "xgrammar", "disable_any_whitespace": True})
    engine = [*kit.engine_arguments(0.4), "--structured-outputs-config", structured]
    engine += ["--kv-cache-memory-bytes", str((16 if kit.on_cuda else 1) * 2**30)]

    def start(name: str) -> Contender:
        # Both compile the same model: each into a place of its own.
        environment = {"VLLM_CACHE_ROOT": str(kit.out / "cache" / name)}
        return stack.enter_context(CONTENDERS[name](kit, kit.medium, engine, environment))

    with ThreadPoolExecutor(len(CONTENDERS)) as starting:
        return list(starting.map(start, CONTENDERS))


def _measure(kit: Kit, flood: Flood, contender: Contender, name: str, case: OutputCase) -> dict[str, Any]:
    streams, requests = (_STREAMS, _REQUESTS) if kit.on_cuda else (_DRY_STREAMS, _DRY_REQUESTS)
    bodies = [_body(kit, contender, case, number) for number in range(requests + _UNTIMED)]
    # What either does at the first request of a kind is not counted: tokenwire's worker has done it at its start.
    flood.send(contender.url, _PATH, bodies[:_UNTIMED], _UNTIMED)
    before = contender.cpu_seconds()
    with sampled(kit.out / f"{contender.name}-{name.replace(' ', '-')}.csv") as gpu:
        found = flood.send(contender.url, _PATH, bodies[_UNTIMED:], streams)
    replies = [reply_of(result) for result in found]
    valid = [not reply.error and case.is_valid(reply) for reply in replies]
    wrong = [reply.error or reply.text[:200] for reply, fine in zip(replies, valid, strict=True) if not fine]
    figures = timings(found)
    return {
        "streams": streams,
        **figures,
        "valid": sum(valid),
        "errors": sum(bool(reply.error) for reply in replies),
        "wrong": wrong[:5],
        **contender.cpu_since(before, figures.get("output_tokens", 0)),
        **gpu,
    }


def _body(kit: Kit, contender: Contender, case: OutputCase, number: int) -> dict[str, Any]:
    tokens = (_TOKENS if kit.on_cuda else _DRY_TOKENS) if case.free else _MOST_TOKENS
    body = streamed_chat(contender.model.name, [{"role": "user", "content": words(20, number)}], tokens)
    return {**body, **case.fields, "ignore_eos": case.free}
