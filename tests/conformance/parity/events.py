"""Responses of routes other than chat and completions, with generated values replaced and deltas joined."""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from tests.conformance.parity.progress import progress

_MADE_UP = ("id", "item_id", "call_id", "request_id", "signature", "tool_use_id")
_TIMES = ("created", "created_at", "completed_at")
_LISTS = ("token_ids", "text", "logprobs")


def anonymous(value: Any) -> Any:
    """Return a JSON value with ids reduced to their kind, times to their type, and without event numbers."""
    if isinstance(value, list):
        return [anonymous(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: _anonymous_field(name, each) for name, each in value.items() if name != "sequence_number"}


def _anonymous_field(name: str, value: Any) -> Any:
    if name in _MADE_UP and isinstance(value, str):
        return value.replace("_", "-").partition("-")[0] if set(value) & set("_-") else bool(value)
    if name in _TIMES and value is not None:
        return type(value).__name__
    return anonymous(value)


def named_events(text: str) -> dict[str, Any]:
    """Assemble a stream of named events: the events in order, each run of deltas as one."""
    events: list[dict[str, Any]] = []
    wrong: set[str] = set()
    for block in filter(None, text.split("\n\n")):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        if fields.get("data") == "[DONE]":
            events.append({"type": "[DONE]"})
            continue
        event = json.loads(fields["data"])
        if event.get("type") == "ping":
            continue  # as often as a server likes
        if fields.get("event") != event.get("type"):
            wrong.add("an event has another name than type")
        events.append(event)
    numbers = [event["sequence_number"] for event in events if "sequence_number" in event]
    if numbers and (numbers[0] != 0 or any(later != number + 1 for number, later in pairwise(numbers))):
        wrong.add("events are not numbered one by one")
    return {"events": _merged([anonymous(event) for event in events]), "wrong": sorted(wrong)}


def _merged(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    merged: list[dict[str, Any]] = []
    for event in events:
        if merged and "delta" in event and _frame(event) == _frame(merged[-1]):
            merged[-1] = _joined(merged[-1], event)
        else:
            merged.append(event)
    return merged


def _frame(event: dict[str, Any]) -> Any:
    """Return the common fields of the deltas of a run."""
    delta = event.get("delta")
    kind = delta.get("type", "end") if isinstance(delta, dict) else None
    return kind, {name: value for name, value in event.items() if name not in ("delta", "logprobs")}


def _joined(before: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    joined = {**before, "delta": _sum(before["delta"], more["delta"])}
    if "logprobs" in before:
        joined["logprobs"] = before["logprobs"] + more.get("logprobs", [])
    return joined


def _sum(before: Any, more: Any) -> Any:
    if isinstance(before, str):
        return before + more
    return {name: value if name == "type" else _sum(value, more.get(name, "")) for name, value in before.items()}


def id_chunks(events: Sequence[str]) -> dict[str, Any]:
    """Assemble a stream of /inference/v1/generate: its choices, their envelope, and its progress."""
    chunks = [json.loads(event) for event in events if event != "[DONE]"]
    errors = [chunk["error"] for chunk in chunks if "error" in chunk]
    chunks = [chunk for chunk in chunks if "error" not in chunk]
    view: dict[str, Any] = {
        "errors": errors,
        "done": list(events[-1:]) == ["[DONE]"],
        "ids": len({chunk.get("request_id") for chunk in chunks}),
        "fields": sorted({name for chunk in chunks if chunk["choices"] for name in chunk}),
        "usage": next((chunk["usage"] for chunk in reversed(chunks) if chunk.get("usage")), None),
        "prompt_token_ids": next(
            (chunk["prompt_token_ids"] for chunk in chunks if chunk.get("prompt_token_ids")), None
        ),
        "choices": {},
        "progress": progress(chunks),
    }
    for chunk in chunks:
        for choice in chunk["choices"]:
            full = view["choices"].setdefault(str(choice["index"]), {})
            for name, value in choice.items():
                full[name] = _added(full.get(name), value) if name in _LISTS else value
    return view


def _added(before: Any, more: Any) -> Any:
    if before is None or more is None:
        return before if more is None else more
    if isinstance(before, dict):
        return {name: before[name] + more[name] for name in before}
    return before + more
