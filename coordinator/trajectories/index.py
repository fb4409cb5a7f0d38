"""What recent turns of a session ended with, so that the next one is stored as what it adds to one of them."""

import time
from array import array
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from tokenwire.coordinator.trajectories.stored_json import stored_json

TurnPolicy = tuple[str, str | None, int]
"""A model and its adapter, with the id of that, which is another one each time it is loaded."""

_DIGEST_BYTES = 16
_MESSAGE_BYTES = 8
_MOST_NODES = 256
_MOST_CONVERSATIONS = 8
"""Of a session whose messages are compared: its agent's own, and those of its helpers."""
_MOST_SESSIONS = 1024
MOST_BYTES = 64 * 2**20
"""Of all indexes together."""
_END_BYTES = 290
"""Measured, of a node by its ids, and without digests of one by its messages."""


class IdDigest:
    """The digest of a growing list of ids, those of one policy."""

    def __init__(self, policy: TurnPolicy | None = None) -> None:
        """`policy`: that of all digests that it may equal; None: it is compared with others without one."""
        self._hash = blake2b(digest_size=_DIGEST_BYTES)
        if policy is not None:
            name = "\0".join((policy[0], policy[1] or "", str(policy[2])))
            self._hash.update(blake2b(name.encode(errors="surrogatepass"), digest_size=_DIGEST_BYTES).digest())
        self.length = 0

    def add(self, token_ids: "array[int]") -> None:
        """Add ids at the end."""
        self._hash.update(token_ids)
        self.length += len(token_ids)

    def followed_by(self, token_ids: "array[int]") -> "IdDigest":
        """Return the digest of these ids after the ones so far."""
        longer = IdDigest()
        longer._hash, longer.length = self._hash.copy(), self.length
        longer.add(token_ids)
        return longer

    def value(self) -> bytes:
        """Return the digest of the ids so far."""
        return self._hash.digest()


class KnownEnds:
    """Nodes by the ids of their prompts and completions; of equal ones, the newest."""

    def __init__(self) -> None:
        self._nodes: OrderedDict[bytes, tuple[int, str]] = OrderedDict()
        """Length and node by digest."""
        self._lengths: list[int] = []
        """Those of all nodes, in order."""

    def __len__(self) -> int:
        return len(self._nodes)

    def put(self, digest: IdDigest, node: str, most: int | None = None) -> None:
        """Add a node; beyond `most` the oldest one is dropped."""
        value = digest.value()
        if value not in self._nodes:
            insort(self._lengths, digest.length)
        self._nodes[value] = (digest.length, node)
        self._nodes.move_to_end(value)
        if most is not None and len(self._nodes) > most:
            _, (length, _) = self._nodes.popitem(last=False)
            del self._lengths[bisect_left(self._lengths, length)]

    def longest(self, token_ids: "array[int]", digest: IdDigest) -> tuple[str, int] | None:
        """Return the node with the most ids that a prompt begins with, and how many of `token_ids` these are.

        token_ids: the ids of the prompt after those of `digest`, which digests all of it then. A node without any of
        them is not found.
        """
        found, start = None, digest.length
        first, after_last = bisect_right(self._lengths, start), bisect_right(self._lengths, start + len(token_ids))
        for length in dict.fromkeys(self._lengths[first:after_last]):
            digest.add(token_ids[digest.length - start : length - start])
            known = self._nodes.get(digest.value())
            if known is not None:
                found = known[1], length - start
        digest.add(token_ids[digest.length - start :])
        return found


class SessionIndex:
    """The recent nodes of one session."""

    def __init__(self) -> None:
        self._ends = KnownEnds()
        self._conversations: OrderedDict[str, tuple[bytes, bytes]] = OrderedDict()
        """Digests of the messages of recent nodes, one after the other, and of their tools."""

    @property
    def size(self) -> int:
        """Bytes in use."""
        ends, conversations = len(self._ends), self._conversations.values()
        return _END_BYTES * (ends + len(conversations)) + sum(len(messages) for messages, _ in conversations)

    def base_of(self, prompt: "array[int]", digest: IdDigest) -> tuple[str, int] | None:
        """Return the node that a prompt continues, and how many of its ids are its; digest the whole prompt."""
        return self._ends.longest(prompt, digest)

    def message_base(self, conversation: "PromptMessages") -> tuple[str, int, bool] | None:
        """Return the node whose messages a conversation shares most of, how many, and whether its tools are equal."""
        best: tuple[str, int, bool] | None = None
        for node, (messages, tools) in reversed(self._conversations.items()):
            shared = _shared(conversation.digests, messages)
            if shared and (best is None or shared > best[1]):
                best = node, shared, tools == conversation.tools_digest
        return best

    def put(
        self, prompt: IdDigest, nodes: Sequence[tuple[str, "array[int]"]], conversation: "PromptMessages | None"
    ) -> None:
        """Add the nodes of a turn, each with its completion."""
        for node, completion in nodes:
            self._ends.put(prompt.followed_by(completion), node, _MOST_NODES)
        if conversation is not None and nodes:
            self._conversations[nodes[0][0]] = conversation.digests, conversation.tools_digest
            if len(self._conversations) > _MOST_CONVERSATIONS:
                self._conversations.popitem(last=False)


class PromptMessages:
    """Digests of the messages of a prompt, and of its tools."""

    __slots__ = ("digests", "messages", "tools", "tools_digest")

    def __init__(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None) -> None:
        self.messages = messages
        self.tools = tools
        self.digests = b"".join([message_digest(message) for message in messages])
        self.tools_digest = b"" if tools is None else message_digest({"tools": tools})


class SessionIndexes:
    """The indexes of the sessions used last, bounded in number and bytes."""

    def __init__(self, ttl_s: float, clock: Callable[[], float] = time.monotonic, most_bytes: int = MOST_BYTES) -> None:
        self.size = 0
        """Bytes in use."""
        self._ttl_s = ttl_s
        self._clock = clock
        self._most_bytes = most_bytes
        self._indexes: OrderedDict[tuple[str, str], tuple[SessionIndex, float]] = OrderedDict()

    def of(self, key: tuple[str, str]) -> SessionIndex:
        """Return the index of a session, an empty one if it has been dropped; to be read only."""
        known = self._indexes.get(key)
        return SessionIndex() if known is None or known[1] <= self._clock() else known[0]

    def put(
        self,
        key: tuple[str, str],
        prompt: IdDigest,
        nodes: Sequence[tuple[str, "array[int]"]],
        conversation: "PromptMessages | None",
    ) -> None:
        """Add the nodes of a turn of a session; drop the indexes used least recently that there is no room for."""
        index = self.of(key)
        self.forget(key)
        index.put(prompt, nodes, conversation)
        self._indexes[key] = index, self._clock() + self._ttl_s
        self.size += index.size
        while self.size > self._most_bytes or len(self._indexes) > _MOST_SESSIONS:
            self.forget(next(iter(self._indexes)))

    def forget(self, key: tuple[str, str]) -> None:
        """Drop a session's index: what it refers to may no longer be stored."""
        if key in self._indexes:
            self.size -= self._indexes.pop(key)[0].size


def _shared(one: bytes, other: bytes) -> int:
    """Return how many message digests two conversations begin with in common."""
    count = 0
    for start in range(0, min(len(one), len(other)), _MESSAGE_BYTES):
        if one[start : start + _MESSAGE_BYTES] != other[start : start + _MESSAGE_BYTES]:
            break
        count += 1
    return count


def message_digest(message: Mapping[str, Any]) -> bytes:
    """Return a digest that ignores the order of a message's fields, which clients may change."""
    return blake2b(stored_json({name: message[name] for name in sorted(message)}), digest_size=_MESSAGE_BYTES).digest()
