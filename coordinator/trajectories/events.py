"""What happens in a session, as it is stored: a line of JSON, then arrays of ids and log-probabilities.

A turn whose prompt begins with what an earlier one ended with has only the rest of it, and a reference.
"""

import json
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tokenwire.coordinator.trajectories.index import TurnPolicy
from tokenwire.coordinator.trajectories.stored_json import stored_json
from tokenwire.process.value_class import value_class

Spans = Sequence[tuple[str, int, int]]
"""Weight versions, each with the first token that it sampled and the one after the last."""


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """A session was created by a client, or was given other metadata."""

    at: float
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RewardGiven:
    """A client has put a reward on a session or on one of its nodes, in place of an earlier one of its name."""

    at: float
    name: str
    value: float
    node: str | None = None


@dataclass(frozen=True, slots=True)
class MessageParsed:
    """The message of a node, as its client got it."""

    node: str
    message: Mapping[str, Any]


@value_class
class RecordedChoice:
    """What was sampled for one choice: a node."""

    node: str
    index: int
    token_ids: "array[int]"
    logprobs: "array[float] | None"
    finish: str
    stop_reason: int | str | None = None
    spans: Spans | None = None
    message: Mapping[str, Any] | None = None
    resumed: bool = False


@value_class
class RecordedTurn:
    """One prompt of a request, and what was sampled for it."""

    request_id: str
    model: str
    choices: Sequence[RecordedChoice]
    prompt_ids: "array[int]"
    """Those after the ids of `base`."""
    base: str | None = None
    """The node whose prompt and completion this prompt begins with."""
    messages: Sequence[Mapping[str, Any]] | None = None
    """Those after the ones that it shares with `message_base`; None: its prompt is no conversation."""
    message_base: str | None = None
    message_start: int = 0
    """How many messages it shares with that node's prompt."""
    tools: Sequence[Mapping[str, Any]] | None = None
    """None: none, or those of `message_base` if `same_tools`."""
    same_tools: bool = False
    adapter: str | None = None
    adapter_id: int = 0
    """Another one each time that the adapter is loaded."""
    sampling: Mapping[str, Any] = field(default_factory=dict)
    started: float = 0.0
    first_token: float | None = None
    ended: float = 0.0
    workers: Sequence[str] = ()
    run: str = ""
    """Names the process that recorded it, and its count of the session's nodes."""
    earlier: int = 0
    """That count before this turn."""

    @property
    def policy(self) -> TurnPolicy:
        """What sampled it: only turns of the same one are linked."""
        return self.model, self.adapter, self.adapter_id


SessionEvent = SessionOpened | RewardGiven | MessageParsed | RecordedTurn

_OF_TURNS = [name for name in RecordedTurn.__annotations__ if name not in ("choices", "prompt_ids")]
_OF_CHOICES = [name for name in RecordedChoice.__annotations__ if name not in ("token_ids", "logprobs")]
"""What is stored as JSON."""
_KINDS: dict[str, type[SessionOpened] | type[RewardGiven] | type[MessageParsed]] = {
    "opened": SessionOpened,
    "reward": RewardGiven,
    "message": MessageParsed,
}


def pack_event(event: SessionEvent) -> bytes:
    """Return an event as bytes."""
    if isinstance(event, RecordedTurn):
        return _pack_turn(event)
    kind = next(name for name, each in _KINDS.items() if isinstance(event, each))
    return stored_json({"kind": kind, **{name: getattr(event, name) for name in event.__slots__}}) + b"\n"


def unpack_event(packed: bytes) -> SessionEvent | None:
    """Return an event; None for bytes that are corrupt or of another version."""
    line, _, contents = packed.partition(b"\n")
    try:
        head = json.loads(line)
        kind = head.pop("kind")
        return _unpack_turn(head, contents) if kind == "turn" else _KINDS[kind](**head)
    except (KeyError, TypeError, ValueError):
        return None


def _pack_turn(turn: RecordedTurn) -> bytes:
    head = {name: getattr(turn, name) for name in _OF_TURNS}
    head["prompt_ids"] = len(turn.prompt_ids)
    head["choices"] = [
        {
            **{name: getattr(choice, name) for name in _OF_CHOICES},
            "tokens": len(choice.token_ids),
            "scored": choice.logprobs is not None,
        }
        for choice in turn.choices
    ]
    parts = [stored_json({"kind": "turn", **head}), b"\n", turn.prompt_ids.tobytes()]
    for choice in turn.choices:
        parts.append(choice.token_ids.tobytes())
        if choice.logprobs is not None:
            parts.append(choice.logprobs.tobytes())
    return b"".join(parts)


def _unpack_turn(head: dict[str, Any], contents: bytes) -> RecordedTurn:
    arrays = _Arrays(contents)
    prompt_ids = arrays.take("I", head.pop("prompt_ids"))
    choices = []
    for each in head.pop("choices"):
        tokens, scored = each.pop("tokens"), each.pop("scored")
        token_ids = arrays.take("I", tokens)
        logprobs = arrays.take("f", tokens) if scored else None
        choices.append(RecordedChoice(**each, token_ids=token_ids, logprobs=logprobs))
    arrays.check_end()
    return RecordedTurn(**head, prompt_ids=prompt_ids, choices=choices)


class _Arrays:
    """Reads arrays from bytes, one after the other. Raises ValueError where there are fewer bytes, or more."""

    def __init__(self, contents: bytes) -> None:
        self._contents = memoryview(contents)
        self._at = 0

    def take(self, kind: str, count: int) -> "array[Any]":
        taken: array[Any] = array(kind)
        end = self._at + count * taken.itemsize
        if end > len(self._contents):
            raise ValueError("cut off")
        taken.frombytes(self._contents[self._at : end])
        self._at = end
        return taken

    def check_end(self) -> None:
        if self._at != len(self._contents):
            raise ValueError("more than expected")
