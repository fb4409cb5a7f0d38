"""What clients do with recorded sessions: find, list, create, reward and delete them."""

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from tokenwire.coordinator.auth.caller import Caller
from tokenwire.coordinator.http.backpressure import BodyMemory
from tokenwire.coordinator.http.content_coding import SMALL_BYTES
from tokenwire.coordinator.trajectories.events import RewardGiven, SessionOpened, unpack_event
from tokenwire.coordinator.trajectories.graph import GraphNode, SessionGraph, build_graph
from tokenwire.coordinator.trajectories.recording import TrajectoryRecorder
from tokenwire.errors import InvalidRequest, NotFound, TooLarge

_MOST_BYTES = 64 * 2**20
"""Of one response."""
_DEFAULT_LIST, MOST_LISTED = 100, 1000

Listed = TypeVar("Listed")


class RecordedSessions:
    """The sessions of all tenants; each finds its own."""

    def __init__(self, recorder: TrajectoryRecorder) -> None:
        self._recorder = recorder

    async def find(self, caller: Caller, session_id: str) -> SessionGraph:
        """Return a session. Raises NotFound or Unavailable."""
        return await asyncio.to_thread(_graph_of, await self._stored(caller.tenant, session_id))

    async def encoded(
        self, caller: Caller, session_id: str, memory: BodyMemory, encode: Callable[[SessionGraph], bytes]
    ) -> bytes:
        """Return what a thread makes of a session: of large ones one at a time, and counted as a body until it is sent.

        Raises NotFound or Unavailable, and what encoding raises.
        """
        packed = await self._stored(caller.tenant, session_id)
        size = sum(map(len, packed))
        if size > SMALL_BYTES:
            await memory.begin_turn(size)
        made = await asyncio.to_thread(lambda: encode(_graph_of(packed)))
        memory.end_turn()
        if len(made) > SMALL_BYTES:
            await memory.add(len(made))
        return made

    async def _stored(self, tenant: str, session_id: str) -> Sequence[bytes]:
        """Return what is stored of a session. Raises NotFound or Unavailable."""
        await self._recorder.settled((tenant, session_id))
        packed = await self._recorder.store.read((tenant, session_id))
        if not packed:
            raise NotFound(
                f"There is no session {session_id!r}: nothing was sampled in it, or it was deleted or dropped.",
                param="session_id",
            )
        return packed

    async def listed(self, caller: Caller, since: float | None, limit: int | None) -> list[dict[str, Any]]:
        """Return a tenant's sessions, the newest first. Raises Unavailable."""
        sessions = [
            session
            for session in await self._recorder.store.sessions(caller.tenant)
            if since is None or session.created_at >= since
        ]
        found = []
        for session in sessions[: limit or _DEFAULT_LIST]:
            with contextlib.suppress(NotFound):
                found.append(info_of(session.id, await self.find(caller, session.id)))
        return found

    async def create(self, caller: Caller, session_id: str | None, metadata: Mapping[str, Any] | None) -> str:
        """Create a session, or add metadata to one; return its id."""
        session_id = session_id or uuid.uuid4().hex
        event = SessionOpened(time.time(), metadata or {})
        self._recorder.append((caller.tenant, session_id), caller.share, event)
        return session_id

    async def reward(self, caller: Caller, session_id: str, node: str | None, name: str, value: float) -> None:
        """Put a reward on a session, or on one of its nodes. Raises NotFound or Unavailable."""
        graph = await self.find(caller, session_id)
        if node is not None:
            _node_of(graph, node)
        event = RewardGiven(time.time(), name, value, node)
        self._recorder.append((caller.tenant, session_id), caller.share, event)

    async def delete(self, caller: Caller, session_id: str) -> int:
        """Delete a session; return the number of its nodes. Raises NotFound or Unavailable."""
        graph = await self.find(caller, session_id)
        await self._recorder.store.delete((caller.tenant, session_id))
        return len(graph.nodes)

    async def flush(self) -> None:
        """Wait until everything is stored. Raises Unavailable."""
        await self._recorder.store.flush()


def info_of(session_id: str, graph: SessionGraph) -> dict[str, Any]:
    """Return what is known of a session beside its nodes, in rLLM's shape and more."""
    return {
        "session_id": session_id,
        "trace_count": len(graph.nodes),
        "created_at": graph.created_at,
        "metadata": graph.metadata,
        "rewards": graph.rewards,
        "lost": graph.lost,
    }


def page_of_nodes(graph: SessionGraph, after: str | None, limit: int | None) -> list[GraphNode]:
    """Return the nodes after one, at most `limit`. Raises InvalidRequest for an unknown one."""
    nodes = [*graph.nodes.values()]
    if after is not None:
        if after not in graph.nodes:
            raise InvalidRequest(f"`after` must be a node of this session, not {after[:100]!r}.", param="after")
        nodes = nodes[[*graph.nodes].index(after) + 1 :]
    return nodes[:limit]


def within_size(parts: Iterable[Listed], size_of: Callable[[Any], int], page: str) -> Iterator[Listed]:
    """Yield the parts of a response, each as it is made. Raises TooLarge as soon as they have too many bytes, which
    says how to get fewer of them.
    """
    size = 0
    for part in parts:
        size += size_of(part)
        if size > _MOST_BYTES:
            message = f"The response would have more than {_MOST_BYTES >> 20} MiB: get it in parts, with {page}."
            raise TooLarge(message, param="limit")
        yield part


def _node_of(graph: SessionGraph, node: str) -> GraphNode:
    if node not in graph.nodes:
        raise NotFound(f"There is no node {node[:100]!r} in this session.", param="node_id")
    return graph.nodes[node]


def _graph_of(packed: Sequence[bytes]) -> SessionGraph:
    return build_graph([event for each in packed if (event := unpack_event(each)) is not None])
