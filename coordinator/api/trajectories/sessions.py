"""What clients do with recorded sessions: find, list, create, reward and delete them."""

import contextlib
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from tokenwire.coordinator.api.json_text import json_bytes
from tokenwire.coordinator.auth.caller import Caller
from tokenwire.coordinator.http.backpressure import SMALL_BYTES, BodyMemory
from tokenwire.coordinator.trajectories.counts import NodeCount
from tokenwire.coordinator.trajectories.events import RewardGiven, SessionOpened, pack_event, unpack_event
from tokenwire.coordinator.trajectories.graph import GraphNode, SessionGraph, build_graph
from tokenwire.coordinator.trajectories.recording import TrajectoryRecorder
from tokenwire.coordinator.trajectories.store import SessionKey
from tokenwire.coordinator.trajectories.summary import SessionSummary, summary_of
from tokenwire.errors import InvalidRequest, NotFound, TooLarge
from tokenwire.process.fair_turns import FairTurns
from tokenwire.process.threads import in_thread

_MOST_BYTES = 64 * 2**20
"""Of one response."""
READING_FACTOR = 6
"""How many times its stored bytes reading a large session takes: measured with agents' turns, and with long ids."""
_ADDED_BYTES = 64
"""More than a store adds to an event."""
_DEFAULT_LIST = 100

Listed = TypeVar("Listed")
Made = TypeVar("Made")


class RecordedSessions:
    """The sessions of all tenants; each finds its own."""

    def __init__(self, recorder: TrajectoryRecorder) -> None:
        self._recorder = recorder
        self._reading = FairTurns(1, 1)
        """At reading a large session: parsed, it takes several times its bytes, until its thread has ended."""

    async def encoded(
        self, caller: Caller, session_id: str, memory: BodyMemory, encode: Callable[[SessionGraph], bytes]
    ) -> bytes:
        """Return what a thread makes of a session, which counts as a body until it is sent.

        Raises NotFound or Unavailable, and what encoding raises.
        """
        made = await self._made_of(caller, session_id, memory, lambda *found: encode(_graph_of(*found)))
        if len(made) > SMALL_BYTES:
            await memory.add(len(made))
        return made

    async def summary(self, caller: Caller, session_id: str, memory: BodyMemory) -> SessionSummary:
        """Return what a session is as a whole. Raises NotFound or Unavailable."""
        return await self._made_of(caller, session_id, memory, summary_of)

    async def _made_of(
        self,
        caller: Caller,
        session_id: str,
        memory: BodyMemory,
        make: Callable[[Sequence[bytes], NodeCount | None], Made],
    ) -> Made:
        """Read a session, and let a thread make something of it: of large ones one at a time."""
        key = (caller.tenant, session_id)
        size = await self._size_of(key)
        if size <= SMALL_BYTES:
            return await self._read(key, make)
        async with self._reading.turn(caller.share):
            await memory.begin_turn(size)
            made = await self._read(key, make)
        memory.end_turn()
        return made

    async def _read(self, key: SessionKey, make: Callable[[Sequence[bytes], NodeCount | None], Made]) -> Made:
        recorded = self._recorder.recorded(key)
        packed = await self._recorder.store.read(key)
        if not packed:
            raise _not_found(key[1])
        return await in_thread(make, packed, recorded)

    async def _size_of(self, key: SessionKey) -> int:
        """Return about how many bytes a session has. Raises NotFound or Unavailable."""
        await self._recorder.settled(key)
        size = await self._recorder.store.size_of(key)
        if not size:
            raise _not_found(key[1])
        return size

    async def listed(self, caller: Caller, since: float | None, limit: int | None, memory: BodyMemory) -> list[bytes]:
        """Return a tenant's sessions, the newest first, as the pieces of a list; they count as a body until it is sent.

        Raises Unavailable, and TooLarge as soon as it has too many bytes.
        """
        pieces, size = list[bytes](), 0
        for session in await self._recorder.store.sessions(caller.tenant, limit or _DEFAULT_LIST, since or 0.0):
            with contextlib.suppress(NotFound):
                info = info_of(session.id, await self.summary(caller, session.id, memory))
                pieces += [b"," if pieces else b"[", json_bytes(info)]
                size += len(pieces[-1])
                check_size(size, "`limit` and `since`")
                if size > SMALL_BYTES:
                    await memory.add(size - memory.held_bytes)
        return [*pieces, b"]"] if pieces else [b"[]"]

    async def create(self, caller: Caller, session_id: str | None, metadata: Mapping[str, Any] | None) -> str:
        """Create a session, or add metadata to one; return its id. Raises TooLarge if it has no room for them, and
        Unavailable if they are not stored.
        """
        key = (caller.tenant, session_id or uuid.uuid4().hex)
        event = SessionOpened(time.time(), metadata or {})
        if session_id and metadata:
            self._check_room(await self._recorder.store.size_of(key), event)
        await self._recorder.put(key, caller.share, event)
        return key[1]

    async def reward(self, caller: Caller, session_id: str, reward: RewardGiven, memory: BodyMemory) -> None:
        """Put a reward on a session, or on one of its nodes. Raises NotFound, Unavailable if it is not stored, or
        TooLarge if the session has no room for it.
        """
        key = (caller.tenant, session_id)
        if reward.node is not None and reward.node not in (await self.summary(caller, session_id, memory)).nodes:
            raise NotFound(f"There is no node {reward.node[:100]!r} in this session.", param="node_id")
        self._check_room(await self._size_of(key), reward)
        await self._recorder.put(key, caller.share, reward)

    def _check_room(self, size: int, event: RewardGiven | SessionOpened) -> None:
        """Raises TooLarge if a session that has this size has no room for an event: it would be dropped."""
        if size + len(pack_event(event)) + _ADDED_BYTES > self._recorder.store.most_session_bytes:
            message = (
                "The session is full: it has as much as --trajectories-session-mb allows, rewards and metadata too."
            )
            raise TooLarge(message, param="session_id")

    async def delete(self, caller: Caller, session_id: str, memory: BodyMemory) -> int:
        """Delete a session; return the number of its nodes. Raises NotFound or Unavailable."""
        summary = await self.summary(caller, session_id, memory)
        await self._recorder.delete((caller.tenant, session_id))
        return len(summary.nodes)

    async def flush(self) -> None:
        """Wait until everything is stored. Raises Unavailable if some of it is not."""
        await self._recorder.store.flush()


def info_of(session_id: str, session: SessionGraph | SessionSummary) -> dict[str, Any]:
    """Return what is known of a session beside its nodes, in rLLM's shape and more."""
    return {
        "session_id": session_id,
        "trace_count": len(session.nodes),
        "created_at": session.created_at,
        "metadata": session.metadata,
        "rewards": session.rewards,
        "lost": session.lost,
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
        check_size(size, page)
        yield part


def check_size(size: int, page: str) -> None:
    """Raises TooLarge for a response of so many bytes, which says how to get it in parts."""
    if size > _MOST_BYTES:
        message = f"The response would have more than {_MOST_BYTES >> 20} MiB: get it in parts, with {page}."
        raise TooLarge(message, param="limit")


def _not_found(session_id: str) -> NotFound:
    message = f"There is no session {session_id!r}: nothing was sampled in it, or it was deleted or dropped."
    return NotFound(message, param="session_id")


def _graph_of(packed: Sequence[bytes], recorded: NodeCount | None) -> SessionGraph:
    return build_graph([event for each in packed if (event := unpack_event(each)) is not None], recorded)
