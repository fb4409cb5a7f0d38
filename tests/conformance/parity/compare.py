"""Compares two replies to the same request, field by field."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.conformance.parity.request import Reply, Request
from tests.conformance.parity.view import view

ABSENT = "(absent)"
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
    """Return every difference between two replies; one, the status, where only one of them is an answer."""
    our_view, their_view = view(request, ours), view(request, theirs)
    if ours.succeeded != theirs.succeeded or "InternalServerError" in (_type(our_view), _type(their_view)):
        our_outcome, their_outcome = _outcome(our_view), _outcome(their_view)
        return [Difference("status", our_outcome, their_outcome)] if our_outcome != their_outcome else []
    if "error" in our_view and "error" in their_view:
        return list(_error_differences(our_view, their_view))
    _keep_common_kinds(our_view, their_view)
    return list(differences(our_view, their_view))


def _error_differences(ours: dict[str, Any], theirs: dict[str, Any]) -> Iterator[Difference]:
    """Compare two errors; the path of a message or param says where both speak of the same field."""
    our_error, their_error = ours["error"], theirs["error"]
    field, their_field = _field(our_error.get("param")), _field(their_error.get("param"))
    if their_field is None and field is not None:
        same = _speaks_of(field, str(our_error.get("message")), str(their_error.get("message")))
    else:
        same = field in (their_field, None)
    for difference in differences(ours, theirs):
        suffix = " (same field)" if same and difference.path in ("error.message", "error.param") else ""
        yield Difference(difference.path + suffix, difference.ours, difference.theirs)


def _field(param: Any) -> str | None:
    """Return the request's field that an error's param is about."""
    if not isinstance(param, str):
        return None
    # Inside a message vLLM's path begins with a number, and lacks the messages.
    return re.sub(r"^\d+$", "messages", param.removeprefix("body.").split(".")[0])


def _speaks_of(field: str, our_message: str, their_message: str) -> bool:
    """Return whether a message without a param is about the field that another one names."""
    words = {"messages": "messages|conversation|multimodal|ValidatorIterator", "prompt": "prompt|Token id"}
    pattern = words.get(field, re.escape(field.replace("_", " ")))
    return bool(re.search(rf"\b({pattern})\b", their_message.replace("_", " "))) or their_message in our_message


def _type(seen: dict[str, Any]) -> Any:
    error = seen.get("error")
    return error.get("type") if isinstance(error, dict) else None


def _outcome(seen: dict[str, Any]) -> str:
    """Put what became of a request into a line."""
    error = seen.get("error")
    if isinstance(error, dict):
        return f"{seen['status']} {error.get('param')}: {error.get('message')}"
    events = seen.get("stream", {}).get("errors")
    return f"{seen['status']} {error or events or 'an answer'}"


def _keep_common_kinds(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Forget which of the chunks with text have a value where, and kinds that only one stream has: both are chance."""
    if "stream" in ours and "stream" in theirs:
        our_keys, their_keys = ours["stream"]["keys"], theirs["stream"]["keys"]
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
