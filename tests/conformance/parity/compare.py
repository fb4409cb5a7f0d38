"""Compares two responses to the same request, field by field."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.conformance.parity.progress import disagreements
from tests.conformance.parity.request import Reply, Request
from tests.conformance.parity.view import view
from tests.conformance.parity.wording import translated, without_quotes

ABSENT = "(absent)"
TRANSLATED = "error (translated)"
"""The path of an error that is the same when vLLM's is put into the words that are used here."""
RELATIVE, ABSOLUTE = 1e-4, 1e-4
"""How far two logprobs may be apart: in float32 the order of additions moves them by about 1e-6."""


@dataclass(frozen=True)
class Difference:
    """One place where two replies are not equal."""

    path: str
    ours: Any
    theirs: Any

    def __str__(self) -> str:
        return f"{self.path}: ours {self.ours!r}, theirs {self.theirs!r}"


def compare(request: Request, ours: Reply, theirs: Reply) -> list[Difference]:
    """Return all differences between two responses; only the outcome if only one of them succeeded."""
    our_view, their_view = view(request, ours), view(request, theirs)
    our_progress, their_progress = our_view.pop("progress", {}), their_view.pop("progress", {})
    if "error" in our_view and "error" in their_view:
        return list(_error_differences(our_view, their_view))
    if ours.succeeded != theirs.succeeded:
        return [Difference("outcome", _outcome(our_view), _outcome(their_view))]
    _keep_common_kinds(our_view, their_view)
    return [*differences(our_view, their_view), *_progress_differences(request, our_progress, their_progress)]


def _error_differences(ours: dict[str, Any], theirs: dict[str, Any]) -> Iterator[Difference]:
    """Compare two errors: first their envelopes, then their contents together."""
    if theirs["status"] == f"{ours['status']} as an event":
        yield Difference("status", ours["status"], theirs["status"])
        theirs = {**theirs, "status": ours["status"]}
    yield from differences({**ours, "status": None, "error": None}, {**theirs, "status": None, "error": None})
    our_error = {**_comparable(ours["error"]), "status": ours["status"]}
    expected = {**translated(theirs["error"]), "status": theirs["status"]}
    if (ours["error"], ours["status"]) == (theirs["error"], theirs["status"]):
        return
    if our_error != expected:
        yield Difference("error", our_error, expected)
    else:
        yield Difference(TRANSLATED, ours["error"], theirs["error"])


def _comparable(error: dict[str, Any]) -> dict[str, Any]:
    message = error.get("message")
    return {**error, "message": without_quotes(message)} if isinstance(message, str) else error


def _progress_differences(request: Request, ours: dict[str, Any], theirs: dict[str, Any]) -> Iterator[Difference]:
    for index in ours.keys() & theirs.keys():
        for what, our_count, their_count in disagreements(ours[index], theirs[index], request.held_back):
            yield Difference(f"stream.choices.{index}.progress: {what}", our_count, their_count)


def _outcome(seen: dict[str, Any]) -> Any:
    """Return the outcome of a request: the error, or that it succeeded."""
    if "error" in seen:
        return {"status": seen["status"], **_comparable(seen["error"])}
    return {"status": seen["status"], "errors": seen.get("stream", {}).get("errors", [])}


def _keep_common_kinds(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Remove what is random: which chunks with text have a value, and kinds of chunks in only one stream."""
    if "stream" in ours and "stream" in theirs:
        our_keys, their_keys = ours["stream"].get("keys", {}), theirs["stream"].get("keys", {})
        for kind in {*our_keys, *their_keys} - {"role", "usage"}:
            common = our_keys.get(kind, {}).keys() & their_keys.get(kind, {}).keys()
            for keys in (our_keys, their_keys):
                keys[kind] = {name: has for name, has in keys.get(kind, {}).items() if common and name not in common}


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[Difference]:
    """Walk two JSON-like values; numbers may differ by rounding only."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in list(theirs) + [name for name in ours if name not in theirs]:
            inner = f"{path}.{name}" if path else str(name)
            yield from differences(ours.get(name, ABSENT), theirs.get(name, ABSENT), inner)
    elif isinstance(ours, list | tuple) and isinstance(theirs, list | tuple):
        if len(ours) != len(theirs):
            yield Difference(f"{path}.length", len(ours), len(theirs))
        for position, (our_item, their_item) in enumerate(zip(ours, theirs, strict=False)):
            yield from differences(our_item, their_item, f"{path}[{position}]")
    elif not _equal(ours, theirs):
        yield Difference(path, ours, theirs)


def _equal(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, bool) or isinstance(theirs, bool):
        return ours is theirs
    if isinstance(ours, float) and isinstance(theirs, float):
        return math.isclose(ours, theirs, rel_tol=RELATIVE, abs_tol=ABSOLUTE) or ours == theirs
    return type(ours) is type(theirs) and bool(ours == theirs)
