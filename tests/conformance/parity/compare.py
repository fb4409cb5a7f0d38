"""Compares two replies to the same request, field by field."""

import math
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
    if ours.succeeded != theirs.succeeded:
        return [Difference("status", _outcome(our_view), _outcome(their_view))]
    _keep_common_kinds(our_view, their_view)
    return list(differences(our_view, their_view))


def _outcome(seen: dict[str, Any]) -> str:
    """Put what became of a request into a line."""
    error = seen.get("error")
    if isinstance(error, dict):
        return f"{seen['status']} {error.get('param')}: {error.get('message')}"
    events = seen.get("stream", {}).get("errors")
    return f"{seen['status']} {error or events or 'an answer'}"


def _keep_common_kinds(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Forget the keys of kinds of chunks that only one stream has: how tokens share chunks is chance."""
    if "stream" in ours and "stream" in theirs:
        our_keys, their_keys = ours["stream"]["keys"], theirs["stream"]["keys"]
        if "delta" not in our_keys or "delta" not in their_keys:
            our_keys.pop("delta", None)
            their_keys.pop("delta", None)


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
