"""The graph of a session: nodes are what was sampled, each after the node whose ids or messages its prompt extends."""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tokenwire.coordinator.trajectories.counts import FoundNodes, NodeCount
from tokenwire.coordinator.trajectories.events import (
    MessageParsed,
    RecordedChoice,
    RecordedTurn,
    RewardGiven,
    SessionEvent,
    SessionOpened,
)
from tokenwire.coordinator.trajectories.index import IdDigest, KnownEnds, TurnPolicy
from tokenwire.coordinator.trajectories.turn_messages import TurnMessages

Link = Literal["ids", "messages"]

Rewards = dict[str, float]
"""By their names."""


@dataclass(slots=True, eq=False)
class GraphNode:
    """One choice of a turn."""

    turn: RecordedTurn
    choice: RecordedChoice
    message: Mapping[str, Any] | None
    parent: "GraphNode | None" = None
    link: Link | None = None
    """What its prompt has of its parent: its ids, or only its messages."""
    prompt_ids: "array[int]" = field(default_factory=lambda: array("I"))
    """Those after its parent's ids, if they are linked by them, else all."""
    conversation: TurnMessages | None = None
    """All messages of its prompt."""
    message_start: int = 0
    """How many of them are those of its parent's prompt."""
    tools: Sequence[Mapping[str, Any]] | None = None
    length: int = 0
    """The number of ids of its whole prompt and its completion."""
    rewards: Rewards = field(default_factory=dict)
    is_leaf: bool = True
    """Whether no other node begins with its ids."""

    @property
    def id(self) -> str:
        """Its id, unique in its session."""
        return self.choice.node

    def line(self) -> "list[GraphNode]":
        """Return the nodes whose ids its own begin with, the first one first, and itself."""
        line, node = [self], self
        while node.link == "ids" and node.parent is not None:
            node = node.parent
            line.append(node)
        return line[::-1]

    def all_prompt_ids(self) -> "array[int]":
        """Return the ids of its whole prompt."""
        joined = array("I")
        for node in self.line():
            joined += node.prompt_ids
            if node is not self:
                joined += node.choice.token_ids
        return joined


@dataclass(slots=True)
class SessionGraph:
    """All that is stored of a session."""

    nodes: dict[str, GraphNode] = field(default_factory=dict)
    """By id, in order of their ends."""
    rewards: Rewards = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    created_at: float = 0.0
    lost: int = 0
    """Nodes that were recorded and are missing, or left out because what they refer to is."""

    def leaves(self) -> Iterator[GraphNode]:
        """Yield the nodes that no other node begins with."""
        return (node for node in self.nodes.values() if node.is_leaf)


def build_graph(events: Sequence[SessionEvent], recorded: NodeCount | None = None) -> SessionGraph:
    """Return the graph of a session's events, which may be of several processes; `recorded`: by the reader's own."""
    graph = SessionGraph()
    messages = {event.node: event.message for event in events if isinstance(event, MessageParsed)}
    builder = _Builder(graph, messages, recorded)
    graph.created_at = min(filter(None, map(_began_at, events)), default=0.0)
    for event in events:
        if isinstance(event, RecordedTurn):
            builder.add(event)
        elif isinstance(event, SessionOpened):
            graph.metadata.update(event.metadata)
    graph.lost = builder.found.missing
    for event in events:
        if isinstance(event, RewardGiven):
            node = None if event.node is None else graph.nodes.get(event.node)
            if event.node is None:
                graph.rewards[event.name] = event.value
            elif node is not None:
                node.rewards[event.name] = event.value
    return graph


def _began_at(event: SessionEvent) -> float | None:
    """Return when an event began, if it says so."""
    match event:
        case RecordedTurn():
            return event.started
        case MessageParsed():
            return None
    return event.at


class _Builder:
    def __init__(
        self, graph: SessionGraph, messages: Mapping[str, Mapping[str, Any]], recorded: NodeCount | None
    ) -> None:
        self.found = FoundNodes(recorded)
        self._graph = graph
        self._messages = messages
        self._ends = KnownEnds()
        self._by_prompt: dict[tuple[TurnPolicy, bytes], GraphNode] = {}
        """The newest nodes of their policies and their prompts' messages."""
        self._digests: dict[str, IdDigest] = {}
        """Of the prompt and the completion of each node."""

    def add(self, turn: RecordedTurn) -> None:
        nodes = self._graph.nodes
        missing = [base for base in (turn.base, turn.message_base) if base is not None and base not in nodes]
        self.found.add(turn.run, turn.earlier, len(turn.choices), left_out=bool(missing))
        if missing:
            return
        conversation, tools = self._conversation(turn)
        parent, link, prompt_ids, digest = self._place(turn, conversation)
        if parent is not None and link == "ids":
            parent.is_leaf = False
        start = 0
        if parent is not None and parent.conversation is not None and conversation is not None:
            start = conversation.in_common(parent.conversation)
        for choice in turn.choices:
            message = self._messages.get(choice.node, choice.message)
            end = self._digests[choice.node] = digest.followed_by(choice.token_ids)
            nodes[choice.node] = GraphNode(
                turn, choice, message, parent, link, prompt_ids, conversation, start, tools, end.length
            )
            if conversation is not None:
                self._by_prompt[turn.policy, conversation.digest] = nodes[choice.node]
            self._ends.put(end, choice.node)

    def _conversation(self, turn: RecordedTurn) -> tuple[TurnMessages | None, Sequence[Mapping[str, Any]] | None]:
        """Return the messages and the tools of a turn's prompt."""
        if turn.messages is None or turn.message_base is None:
            return None if turn.messages is None else TurnMessages(turn.messages), turn.tools
        base = self._graph.nodes[turn.message_base]
        conversation = TurnMessages(turn.messages, base.conversation, turn.message_start)
        return conversation, base.tools if turn.same_tools else turn.tools

    def _place(
        self, turn: RecordedTurn, conversation: TurnMessages | None
    ) -> "tuple[GraphNode | None, Link | None, array[int], IdDigest]":
        """Return the parent of a turn, what links them, the ids after its parent's, and the digest of its prompt."""
        nodes, policy = self._graph.nodes, turn.policy
        base, prompt_ids = None if turn.base is None else nodes[turn.base], turn.prompt_ids
        if base is not None and base.turn.policy != policy:  # as earlier versions stored it
            prompt_ids = base.all_prompt_ids() + base.choice.token_ids + prompt_ids
            base = None
        digest = IdDigest(policy) if base is None else self._digests[base.id].followed_by(array("I"))
        found = self._ends.longest(prompt_ids, digest)
        if found is not None:  # also of another process, which the turn's own does not know
            return nodes[found[0]], "ids", prompt_ids[found[1] :], digest
        if base is not None:
            return base, "ids", prompt_ids, digest
        parent = None if conversation is None else self._by_messages(conversation, policy)
        return parent, None if parent is None else "messages", prompt_ids, digest

    def _by_messages(self, conversation: TurnMessages, policy: TurnPolicy) -> GraphNode | None:
        """Return the node whose prompt and reply a conversation goes on after, by its messages alone: of those of its
        policy with most messages, the newest.
        """
        for digest, following in conversation.beginnings():
            node = self._by_prompt.get((policy, digest))
            if node is not None and following.get("role") == "assistant":
                return node
        return None
