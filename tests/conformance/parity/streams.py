"""Assembles a stream: its content, the order of its events, and the keys of its chunks."""

import json
from collections.abc import Sequence
from typing import Any

from tests.conformance.parity.progress import progress

_OPAQUE = frozenset({"choices.logprobs"})
"""What is compared by content; the keys inside it are not counted."""


def assemble(events: Sequence[str]) -> dict[str, Any]:
    """Assemble a stream into one JSON-like value for comparison."""
    chunks = [json.loads(event) for event in events if event != "[DONE]"]
    errors = [chunk["error"] for chunk in chunks if "error" in chunk]
    chunks = [chunk for chunk in chunks if "error" not in chunk]
    view: dict[str, Any] = {
        "objects": sorted({chunk["object"] for chunk in chunks}),
        "models": sorted({chunk["model"] for chunk in chunks}),
        "ids": len({chunk["id"] for chunk in chunks}),
        "created": sorted({type(chunk["created"]).__name__ for chunk in chunks}),
        "times": len({chunk["created"] for chunk in chunks}),
        "order": _order(chunks, list(events)),
        "roles": [
            (choice["index"], choice["delta"]["role"], choice["delta"].get("content"))
            for chunk in chunks
            for choice in chunk["choices"]
            if choice.get("delta", {}).get("role")
        ],
        "choices": {},
        "keys": _keys(chunks),
        "progress": progress(chunks),
    }
    for name in ("prompt_token_ids", "prompt_text", "usage", "metrics"):
        view[name] = next((chunk[name] for chunk in reversed(chunks) if chunk.get(name) is not None), None)
    view["usages"] = sum(bool(chunk.get("usage")) for chunk in chunks) and _usages(chunks)
    for chunk in chunks:
        for choice in chunk["choices"]:
            _add(view["choices"], choice)
    if errors:
        view["errors"] = errors
    return view


def _add(choices: dict[str, Any], choice: dict[str, Any]) -> None:
    """Add a chunk's choice to the assembled choices."""
    delta = choice.get("delta") or {"text": choice.get("text")}
    full = choices.setdefault(str(choice["index"]), {"finish_reason": None, "stop_reason": None, "logprobs": None})
    for name in ("text", "content", "reasoning"):
        if delta.get(name) is not None:
            full[name] = _concatenate(full.get(name), delta[name])
    for call in delta.get("tool_calls") or ():
        _add_call(full.setdefault("tool_calls", {}), call)
    for name in ("finish_reason", "stop_reason"):
        full[name] = choice.get(name) if choice.get(name) is not None else full[name]
    for name in ("token_ids", "prompt_token_ids"):
        if choice.get(name) is not None:
            full[name] = full.get(name, []) + choice[name]
    full["logprobs"] = _add_logprobs(full["logprobs"], choice.get("logprobs"))


def _concatenate(before: Any, more: Any) -> Any:
    if before is None or before == "":
        return more
    return before + more if isinstance(before, str) and isinstance(more, str) else [before, more]


def _add_call(calls: dict[str, Any], call: dict[str, Any]) -> None:
    full = calls.setdefault(str(call.get("index")), {"id": None, "type": None, "name": None, "arguments": ""})
    function = call.get("function") or {}
    for name, value in (("id", call.get("id")), ("type", call.get("type")), ("name", function.get("name"))):
        full[name] = value if value is not None else full[name]
    full["arguments"] += function.get("arguments") or ""


def _add_logprobs(before: dict[str, Any] | None, more: dict[str, Any] | None) -> dict[str, Any] | None:
    if before is None or more is None:
        return before or more
    return {name: (before.get(name) or []) + (value or []) for name, value in more.items()}


def _order(chunks: list[dict[str, Any]], events: list[str]) -> list[str]:
    """Return errors in the order of events, usually none."""
    wrong = [] if events and events[-1] == "[DONE]" and events.count("[DONE]") == 1 else ["[DONE] is not the end"]
    opened: set[int] = set()
    finished: set[int] = set()
    for position, chunk in enumerate(chunks):
        if not chunk["choices"] and position < len(chunks) - 1:
            wrong.append("a chunk without choices is not the last one")
        for choice in chunk["choices"]:
            index, delta = choice["index"], choice.get("delta", {})
            if index in finished:
                wrong.append("a choice goes on after its finish_reason")
            if delta.get("role") and index in opened:
                wrong.append("a role does not come first")
            opened.add(index)
            if choice.get("finish_reason") is not None:
                finished.add(index)
    if opened != finished:
        wrong.append("a choice has no finish_reason")
    return sorted(set(wrong))


def _usages(chunks: list[dict[str, Any]]) -> str:
    """Return which chunks have usage, and whether it only grows."""
    with_choices = [chunk for chunk in chunks if chunk["choices"]]
    if not any(chunk.get("usage") for chunk in with_choices):
        return "on the last chunk"
    counts: dict[int, int] = {}
    for chunk in with_choices:
        index, usage = chunk["choices"][0]["index"], chunk.get("usage")
        if not usage or usage["completion_tokens"] < counts.get(index, 0):
            return "on some chunks, or shrinking"
        counts[index] = usage["completion_tokens"]
    last = "and in the end" if not chunks[-1]["choices"] else "without an end"
    return f"on every chunk {last}: {sorted(counts.items())}"


def _keys(chunks: list[dict[str, Any]]) -> dict[str, dict[str, str]]:
    """Return the keys of all chunks of each kind together, and whether they are ever not null."""
    kinds: dict[str, dict[str, str]] = {}
    for chunk in chunks:
        parts = {name: value for name, value in chunk.items() if name not in ("choices", "system_fingerprint")}
        for choice in chunk["choices"]:
            parts.update(_flat(choice, "choices."))
        kind = _kind(chunk)
        for name, value in parts.items():
            # Which tokens the last chunk has is chance, so what a delta holds, and ids, are counted over all chunks.
            anywhere = name.startswith(("choices.delta.", "choices.token_ids")) and kind != "role"
            seen = kinds.setdefault("any" if anywhere else kind, {})
            seen[name] = "null" if value is None and seen.get(name) != "given" else "given"
    return kinds


def _kind(chunk: dict[str, Any]) -> str:
    if not chunk["choices"]:
        return "usage"
    choice = chunk["choices"][0]
    if choice.get("delta", {}).get("role"):
        return "role"
    return "finish" if choice.get("finish_reason") is not None else "delta"


def _flat(value: dict[str, Any], prefix: str) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    for name, part in value.items():
        path = f"{prefix}{name}"
        if isinstance(part, dict) and path not in _OPAQUE:
            parts.update(_flat(part, f"{path}."))
        else:
            parts[path] = part
    return parts
