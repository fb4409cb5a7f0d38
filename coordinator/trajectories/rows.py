"""Rows for trainers: one for each line of a session, or for each node; each sampled token is marked in exactly one."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from tokenwire.coordinator.trajectories.graph import GraphNode, Rewards, SessionGraph

By = Literal["path", "node"]


@dataclass(slots=True)
class TrainingRow:
    """A sequence: the first prompt of its nodes, and all that follows it."""

    session_id: str
    nodes: list[str]
    prompt_ids: list[int]
    completion_ids: list[int] = field(default_factory=list)
    logprobs: list[float | None] = field(default_factory=list)
    """Parallel to completion_ids; null for tokens that were not sampled, and for those of which it is not known."""
    mask: list[int] = field(default_factory=list)
    """1 for tokens that were sampled, and are not marked in an earlier row; else 0."""
    versions: list[str | None] = field(default_factory=list)
    """The version of the weights that sampled each token; null for others, and if it has no label."""
    finish: str = ""
    """Of its last node."""
    model: str = ""
    adapter: str | None = None
    reward: float | None = None
    """The session's reward with the name `reward`."""
    rewards: Rewards = field(default_factory=dict)
    """All of the session's, by name."""
    node_rewards: dict[str, Rewards] = field(default_factory=dict)
    """Those of its nodes, by node and name."""


def rows_of(
    session_id: str, graph: SessionGraph, by: By, offset: int = 0, limit: int | None = None
) -> Iterator[TrainingRow]:
    """Yield the rows of a session, in order of the ends of their last nodes.

    by: `path` is one for each node that no other one begins with, from the first prompt of its line on; `node` is one
    for each node, with all of its prompt. offset: how many to leave out, which mark their tokens nonetheless.
    """
    marked: set[str] = set()
    ends = graph.leaves() if by == "path" else iter(graph.nodes.values())
    for number, end in enumerate(ends):
        line = end.line()
        if limit is not None and number >= offset + limit:
            break
        if number < offset:
            marked.update(node.id for node in line)
            continue
        if by == "path":
            row = _row(session_id, graph, line, line[0].prompt_ids.tolist())
            for node in line:
                if node is not line[0]:
                    _add_prompt(row, node)
                _add_completion(row, node, node.id not in marked)
        else:
            row = _row(session_id, graph, [end], end.all_prompt_ids().tolist())
            _add_completion(row, end, True)
        marked.update(row.nodes)
        yield row


def _row(session_id: str, graph: SessionGraph, line: list[GraphNode], prompt_ids: list[int]) -> TrainingRow:
    last = line[-1]
    return TrainingRow(
        session_id,
        [node.id for node in line],
        prompt_ids,
        finish=last.choice.finish,
        model=last.turn.model,
        adapter=last.turn.adapter,
        reward=graph.rewards.get("reward"),
        rewards=graph.rewards,
        node_rewards={node.id: node.rewards for node in line if node.rewards},
    )


def _add_prompt(row: TrainingRow, node: GraphNode) -> None:
    count = len(node.prompt_ids)
    row.completion_ids += node.prompt_ids
    row.logprobs += [None] * count
    row.mask += [0] * count
    row.versions += [None] * count


def _add_completion(row: TrainingRow, node: GraphNode, marks: bool) -> None:
    choice = node.choice
    count = len(choice.token_ids)
    row.completion_ids += choice.token_ids
    row.logprobs += [None] * count if choice.logprobs is None else choice.logprobs
    row.mask += [int(marks)] * count
    versions: list[str | None] = [None] * count
    for version, start, end in choice.spans or ():
        versions[start:end] = [version] * (end - start)
    row.versions += versions
