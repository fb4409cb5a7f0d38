"""Keeps the bytes of pictures by digest: as long as a request has them, and after that while there is memory.

Clients share the memory: each leaves others room, and who keeps most loses first what no request has.
"""

import hashlib
import math
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from tokenwire.coordinator.media.content import MediaContent
from tokenwire.errors import Overloaded, mib
from tokenwire.process.fair_memory import FairMemory
from tokenwire.process.fair_room import leaves_room

_RETRY_AFTER_S = 1.0
PICTURE_BYTES = 1024
"""What a picture takes besides its own bytes, about."""
_NAME_BYTES = 256
NAMES_BYTES = _NAME_BYTES * 65_536
"""What all names take, about. Who has most of them loses first."""


class _Idle(NamedTuple):
    """What is kept of a picture that no request has any more."""

    data: bytes
    modality: str
    share: str


_PictureName = tuple[str, bytes]
"""A tenant, and the digest of the name that it gave: clients choose how long that is."""


class MediaStore:
    """Pictures within a bound of bytes, each once, which counts for the first client that has it."""

    def __init__(self, memory_bytes: int, picture_bytes: int = PICTURE_BYTES) -> None:
        """`picture_bytes`: what a picture counts for besides its own."""
        self._memory_bytes = memory_bytes
        self._picture_bytes = picture_bytes
        self._used = 0
        """Bytes of all pictures that a request has, that are arriving, or that are idle: no request has them now."""
        self._ended = deque[Callable[[], None]]()
        """What to do for what was dropped since: that may be in another thread, or in the middle of anything."""
        self._live: weakref.WeakValueDictionary[bytes, MediaContent] = weakref.WeakValueDictionary()
        self._idle = FairMemory[bytes, _Idle](memory_bytes, math.inf)
        """By digest, within what is used."""
        self._used_by = Counter[str]()
        """Of `_used`, by share."""
        self._names = FairMemory[_PictureName, bytes](NAMES_BYTES, math.inf)
        """Digests by what tenants call them: what one tenant names, no other finds."""

    @property
    def used_bytes(self) -> int:
        """Of all pictures that are kept, that a request has, or that are arriving."""
        self._settle()
        return self._used

    def add(self, content: MediaContent, share: str = "") -> MediaContent:
        """Keep a picture; return it, or the one with the same bytes. Raises Overloaded if there is no memory.

        `share`: whose part of the memory it takes; empty: nobody's.
        """
        self._settle()
        known = self._live.get(content.digest)
        if known is not None:
            return known
        idle = self._idle.find(content.digest)
        if idle is None:
            self._take(self._size(content.data), share)
        else:
            self._idle.drop(content.digest)
        self._hold(content, share if idle is None else idle.share)
        return content

    def _hold(self, content: MediaContent, share: str) -> None:
        """Find a picture as long as a request has it, and keep its bytes then."""
        self._live[content.digest] = content
        unused = partial(self._on_unused, content.digest, _Idle(content.data, content.modality, share))
        weakref.finalize(content, self._ended.append, unused).atexit = False

    def _settle(self) -> None:
        while self._ended:
            self._ended.popleft()()

    def _on_unused(self, digest: bytes, idle: "_Idle") -> None:
        size = self._size(idle.data)
        if digest in self._live or self._idle.find(digest) is not None:  # it came again in between
            self._free(size, idle.share)
        else:
            self._idle.put(digest, idle, idle.share, size)

    def count(self, holder: object, size: int, share: str = "") -> None:
        """Count bytes for as long as anybody has what holds them. Raises Overloaded if there is no memory."""
        self._take(size, share)
        weakref.finalize(holder, self._ended.append, partial(self._free, size, share)).atexit = False

    @contextmanager
    def arriving(self, share: str = "") -> Iterator[Callable[[int], None]]:
        """Count a picture that is not added yet, meanwhile, by the function that this yields.

        It takes the number of further bytes, and raises Overloaded if there is no memory for them.
        """
        arrived = 0

        def count(more: int) -> None:
            nonlocal arrived
            more += 0 if arrived else self._picture_bytes  # at once: who has nothing yet need not leave room
            self._take(more, share)
            arrived += more

        try:
            yield count
        finally:
            self._free(arrived, share)

    def name(self, tenant: str, name: str, content: MediaContent) -> None:
        """Let a tenant find a picture by a name of its own."""
        self._names.put(_key(tenant, name), content.digest, tenant, _NAME_BYTES)

    def find(self, tenant: str, name: str) -> MediaContent | None:
        """Return the picture to which a tenant gave a name, if it is still kept."""
        self._settle()
        digest = self._names.use(_key(tenant, name))
        if digest is None:
            return None
        idle = self._idle.find(digest)
        if idle is None:
            return self._live.get(digest)
        self._idle.drop(digest)
        content = MediaContent(idle.data, idle.modality, digest)
        self._hold(content, idle.share)
        return content

    def _take(self, size: int, share: str) -> None:
        self._settle()
        own, all_idle = self._idle.size_of(share), self._idle.size
        is_possible = self._fits(size, all_idle) and self._leaves_room(size, share, own, all_idle)
        while is_possible and not (self._fits(size) and self._leaves_room(size, share)):
            idle = self._idle.evict()
            self._free(self._size(idle.data), idle.share)
        if self._fits(size) and self._leaves_room(size, share):
            self._used += size
            self._used_by[share] += size
            return
        held, more = f"The pictures of requests take {mib(self._used)}", f"{mib(size)} more"
        if self._fits(size):
            held = f"The pictures of this client's requests take {mib(self._used_by[share])}, those of all take"
            held, more = f"{held} {mib(self._used)}", f"{more} that leaves others a part"
        raise Overloaded(
            f"{held} of at most {mib(self._memory_bytes)} (--media-memory-mb): there is no room for {more}.",
            retry_after_s=_RETRY_AFTER_S,
        )

    def _fits(self, size: int, freed: int = 0) -> bool:
        """Return whether so much is free, once some is freed."""
        return self._used - freed + size <= self._memory_bytes

    def _leaves_room(self, size: int, share: str, own_freed: int = 0, freed: int = 0) -> bool:
        """Return whether others have room beside a client's, once some is freed, and a part of it of its own; who has
        nothing yet need not leave any.
        """
        own, free = self._used_by[share] - own_freed, self._memory_bytes - self._used + freed
        return not (share and own) or leaves_room(own, size, free)

    def _size(self, data: bytes) -> int:
        return len(data) + self._picture_bytes

    def _free(self, size: int, share: str) -> None:
        self._used -= size
        self._used_by[share] -= size
        if not self._used_by[share]:
            del self._used_by[share]


def _key(tenant: str, name: str) -> _PictureName:
    return tenant, hashlib.blake2b(name.encode(), digest_size=16).digest()
