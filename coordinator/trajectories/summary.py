"""What a session is as a whole, read without what was sampled: of large ones that takes a small part of the memory."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NotRequired, TypeAlias

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from tokenwire.coordinator.trajectories.counts import FoundNodes, NodeCount
from tokenwire.coordinator.trajectories.graph import Rewards

_ITEM_BYTES = 4
"""Of an id and of a log-probability."""


@dataclass(slots=True)
class SessionSummary:
    """The parts of a graph that do not depend on how its nodes are linked."""

    nodes: set[str] = field(default_factory=set)
    """Ids."""
    rewards: Rewards = field(default_factory=dict)
    """Of the session itself."""
    metadata: dict[str, Any] = field(default_factory=dict)
    created_at: float = 0.0
    lost: int = 0
    """Nodes that were recorded and are missing, or left out because what they refer to is."""


class _ChoiceHead(TypedDict):
    node: str
    tokens: int
    scored: bool


class _TurnHead(TypedDict):
    kind: Literal["turn"]
    started: float
    prompt_ids: int
    base: str | None
    message_base: str | None
    choices: list[_ChoiceHead]
    run: NotRequired[str]
    earlier: NotRequired[int]


class _OpenedHead(TypedDict):
    kind: Literal["opened"]
    at: float
    metadata: dict[str, Any]


class _RewardHead(TypedDict):
    kind: Literal["reward"]
    at: float
    name: str
    value: float
    node: str | None


class _MessageHead(TypedDict):
    kind: Literal["message"]


_Head: TypeAlias = Annotated[_TurnHead | _OpenedHead | _RewardHead | _MessageHead, Field(discriminator="kind")]
_HEAD: TypeAdapter[_Head] = TypeAdapter(_Head)
"""The first line of an event, as `events` writes it; fields that are not named above are never made objects of."""


def summary_of(packed: Sequence[bytes], recorded: NodeCount | None = None) -> SessionSummary:
    """Return the summary of a session's events, which is that of their graph."""
    summary, found = SessionSummary(), FoundNodes(recorded)
    began: list[float] = []
    for event in packed:
        line, _, contents = event.partition(b"\n")
        try:
            head = _HEAD.validate_json(line)
        except ValidationError:
            continue  # corrupt, or of another version
        if head["kind"] == "turn":
            if _size_of(head) == len(contents):
                began.append(head["started"])
                _add_turn(summary, found, head)
        elif head["kind"] == "opened":
            began.append(head["at"])
            summary.metadata.update(head["metadata"])
        elif head["kind"] == "reward":
            began.append(head["at"])
            if head["node"] is None:
                summary.rewards[head["name"]] = head["value"]
    summary.lost = found.missing
    summary.created_at = min(filter(None, began), default=0.0)
    return summary


def _size_of(turn: _TurnHead) -> int:
    return _ITEM_BYTES * (turn["prompt_ids"] + sum(each["tokens"] * (1 + each["scored"]) for each in turn["choices"]))


def _add_turn(summary: SessionSummary, found: FoundNodes, turn: _TurnHead) -> None:
    missing = any(base is not None and base not in summary.nodes for base in (turn["base"], turn["message_base"]))
    found.add(turn.get("run", ""), turn.get("earlier", 0), len(turn["choices"]), left_out=missing)
    if not missing:
        summary.nodes.update(choice["node"] for choice in turn["choices"])
