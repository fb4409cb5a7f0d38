"""One stored response: what clients get of it, and what continues it; and its form in a shared store."""

import json
from dataclasses import dataclass
from typing import Any

_OVERHEAD_BYTES = 1024
"""Of one response, measured, without its contents."""
_ENDED = frozenset({"completed", "incomplete", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response, its own input, and the ids of the responses that it continues."""

    id: str
    tenant: str
    """Who may use it."""
    share: str
    """Whose share of the memory it takes."""
    status: str
    conversation_id: str
    """By which the token ids of its turns are found."""
    body: bytes
    """The Response object, as JSON."""
    input: bytes
    """The items of its request, as JSON."""
    background: bool = False
    chain: tuple[str, ...] = ()
    """The ids of the responses before it, the first one first."""
    context_bytes: int = 0
    """The size of their contents and its own."""
    events: bytes | None = None
    """The events of a stream in the background, each ended by an empty line; None: it was not streamed."""
    first_event: int = 0
    """The number of the first event that was kept."""

    @property
    def has_ended(self) -> bool:
        """Whether nothing more comes."""
        return self.status in _ENDED

    @property
    def can_be_continued(self) -> bool:
        """Whether it has a reply."""
        return self.status in ("completed", "incomplete")

    @property
    def size_bytes(self) -> int:
        """What it takes of a store."""
        contents = len(self.body) + len(self.input) + len(self.events or b"")
        return _OVERHEAD_BYTES + contents + sum(map(len, self.chain))


def pack(response: StoredResponse) -> bytes:
    """Return a response as bytes."""
    contents = (response.body, response.input, response.events or b"")
    head: dict[str, Any] = {
        "id": response.id,
        "tenant": response.tenant,
        "share": response.share,
        "status": response.status,
        "conversation_id": response.conversation_id,
        "background": response.background,
        "chain": response.chain,
        "context_bytes": response.context_bytes,
        "first_event": response.first_event,
    }
    sizes = [len(response.body), len(response.input), None if response.events is None else len(response.events)]
    return b"\n".join([json.dumps({**head, "sizes": sizes}).encode(), b"".join(contents)])


def unpack(packed: bytes) -> StoredResponse | None:
    """Return a response; None for bytes that are corrupt or of another version."""
    line, _, contents = packed.partition(b"\n")
    try:
        head = json.loads(line)
        body, given, events = head.pop("sizes")
        if len(contents) != body + given + (events or 0):
            return None
        return StoredResponse(
            **{**head, "chain": tuple(head["chain"])},
            body=contents[:body],
            input=contents[body : body + given],
            events=None if events is None else contents[body + given :],
        )
    except (KeyError, TypeError, ValueError):
        return None
