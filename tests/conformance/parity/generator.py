"""Generates random requests over all fields of both routes, reproducible by seed and number."""

from random import Random
from typing import Any

from tests.conformance.parity import fields
from tests.conformance.parity.request import CHAT, MODEL, TEXT, Request

_VALID = 0.7
"""How many requests are drawn without anything that should be rejected."""
_ALL_OF_BOTH: dict[str, list[dict[str, Any]]] = {
    CHAT: fields.COMMON + fields.CHAT_ONLY,
    TEXT: fields.COMMON + fields.TEXT_ONLY,
}
_INVALID_OF_BOTH: dict[str, list[dict[str, Any]]] = {
    CHAT: fields.INVALID_COMMON + fields.INVALID_CHAT,
    TEXT: fields.INVALID_COMMON + fields.INVALID_TEXT,
}


def generate_request(seed: int, number: int, profile: str = "plain") -> Request:
    """Return a random request for one kind of server."""
    draw = Random(f"{profile}:{seed}:{number}")
    parsed = profile == "parsers"
    path = CHAT if parsed else draw.choice([CHAT, TEXT])
    body: dict[str, Any] = {"model": MODEL, "max_tokens": draw.choice([1, 2, 5, 8, 12]), **fields.sampling(draw)}
    if path == CHAT:
        body["messages"] = draw.choice(fields.MESSAGES)
    else:
        body["prompt"] = draw.choice(fields.PROMPTS)
    if parsed:
        body.update(draw.choice(fields.PARSED))
    for fragment in draw.sample(_ALL_OF_BOTH[path], draw.choice([0, 1, 1, 2, 2, 3, 4])):
        body.update(fragment)
    if draw.random() < 0.5:
        body["stream"] = True
        if draw.random() < 0.7:
            body["stream_options"] = draw.choice([{"include_usage": True}, *_STREAM_OPTIONS])
    if draw.random() > _VALID:
        _spoil(draw, path, body)
    return Request(path, _repeatable(body), name=f"{profile}:{seed}:{number}")


_STREAM_OPTIONS: list[dict[str, Any]] = [
    {"include_usage": True, "continuous_usage_stats": True},
    {"continuous_usage_stats": True},
    {},
]


def _spoil(draw: Random, path: str, body: dict[str, Any]) -> None:
    """Add something possibly invalid to a request."""
    if draw.random() < 0.5:
        body.update(draw.choice(_INVALID_OF_BOTH[path]))
        return
    names = {name for fragment in _ALL_OF_BOTH[path] for name in fragment}
    names |= {"model", "messages" if path == CHAT else "prompt", "temperature", "seed", "n", "stream", "stream_options"}
    body[draw.choice(sorted(names))] = draw.choice(fields.OTHER_TYPES)


def _repeatable(body: dict[str, Any]) -> dict[str, Any]:
    """Make a reply short and reproducible, so that it can be compared."""
    if body.get("temperature", 0) != 0 and body.get("seed") in (None, -1):
        body["seed"] = 1
    if "temperature" in body and body["temperature"] is None:
        body["seed"] = body.get("seed") or 1
    if body.get("max_tokens") is None and "max_completion_tokens" not in body:
        body["max_tokens"] = 4
    if "max_completion_tokens" in body and body["max_completion_tokens"] is None:
        body["max_tokens"] = body.get("max_tokens") or 4
    return body
