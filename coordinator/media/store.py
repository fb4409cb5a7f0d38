"""Keeps the bytes of pictures by digest: as long as a request has them, and after that while there is memory.

Clients share the memory: each leaves others room, and who has most loses first what no request has.
"""

import hashlib
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tokenwire.coordinator.media.content import MediaContent
from tokenwire.errors import Overloaded, mib
from tokenwire.process.fair_room import leaves_room

_RETRY_AFTER_S = 1.0
_MOST_NAMES = 65_536
NAMES_BYTES = 256 * _MOST_NAMES
"""What all names take, about."""

_PictureName = tuple[str, bytes]
"""A tenant, and the digest of the name that it gave: clients choose how long that is."""


class MediaStore:
    """Pictures within a bound of bytes, each once, which counts for the first client that has it."""

    def __init__(self, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        self.used_bytes = 0
        """Of all pictures that are kept, that a request has, or that are arriving."""
        self._live: weakref.WeakValueDictionary[bytes, MediaContent] = weakref.WeakValueDictionary()
        self._kept: dict[str, OrderedDict[bytes, MediaContent]] = {}
        """By the share that they count for, least recently used first; without empty ones."""
        self._kept_by: dict[bytes, str] = {}
        """The shares of those, by digest."""
        self._used_by = Counter[str]()
        """Of `used_bytes`, by share."""
        self._names: OrderedDict[_PictureName, bytes] = OrderedDict()
        """Digests by what tenants call them: what one tenant names, no other finds."""

    def add(self, content: MediaContent, share: str = "") -> MediaContent:
        """Keep a picture; return it, or the one with the same bytes. Raises Overloaded if there is no memory.

        `share`: whose part of the memory it takes; empty: nobody's.
        """
        known = self._live.get(content.digest)
        if known is None:
            self.count(content, len(content.data), share)
            known = self._live[content.digest] = content
        kept = self._kept.setdefault(self._kept_by.setdefault(known.digest, share), OrderedDict())
        kept[known.digest] = known
        kept.move_to_end(known.digest)
        return known

    def count(self, holder: object, size: int, share: str = "") -> None:
        """Count bytes for as long as anybody has what holds them. Raises Overloaded if there is no memory."""
        self._take(size, share)
        weakref.finalize(holder, self._free, size, share)

    @contextmanager
    def arriving(self, share: str = "") -> Iterator[Callable[[int], None]]:
        """Count a picture that is not added yet, meanwhile, by the function that this yields.

        It takes the number of further bytes, and raises Overloaded if there is no memory for them.
        """
        arrived = 0

        def count(more: int) -> None:
            nonlocal arrived
            self._take(more, share)
            arrived += more

        try:
            yield count
        finally:
            self._free(arrived, share)

    def name(self, tenant: str, name: str, content: MediaContent) -> None:
        """Let a tenant find a picture by a name of its own."""
        key = _key(tenant, name)
        self._names[key] = content.digest
        self._names.move_to_end(key)
        if len(self._names) > _MOST_NAMES:
            self._names.popitem(last=False)

    def find(self, tenant: str, name: str) -> MediaContent | None:
        """Return the picture to which a tenant gave a name, if it is still kept."""
        key = _key(tenant, name)
        digest = self._names.get(key)
        content = None if digest is None else self._live.get(digest)
        if content is not None:
            self._names.move_to_end(key)
        return content

    def _take(self, size: int, share: str) -> None:
        while self._kept and not (self._fits(size) and self._leaves_room(size, share)):
            self._drop()
        if not self._fits(size):
            held = f"The pictures of requests take {mib(self.used_bytes)}"
        elif not self._leaves_room(size, share):
            held = f"The pictures of this client's requests take {mib(self._used_by[share])}, those of all take"
            held = f"{held} {mib(self.used_bytes)}"
        else:
            self.used_bytes += size
            self._used_by[share] += size
            return
        raise Overloaded(
            f"{held} of at most {mib(self._memory_bytes)} (--media-memory-mb): there is no room for {mib(size)} more.",
            retry_after_s=_RETRY_AFTER_S,
        )

    def _fits(self, size: int) -> bool:
        return self.used_bytes + size <= self._memory_bytes

    def _leaves_room(self, size: int, share: str) -> bool:
        """Return whether others have room beside a client's; who has nothing yet need not leave any."""
        own = self._used_by[share]
        return not (share and own) or leaves_room(own, size, self._memory_bytes - self.used_bytes)

    def _drop(self) -> None:
        """Keep no longer what the client with most has used least recently: that frees it, unless a request has it."""
        share = max(self._kept, key=self._used_by.__getitem__)
        digest, _ = self._kept[share].popitem(last=False)
        del self._kept_by[digest]
        if not self._kept[share]:
            del self._kept[share]

    def _free(self, size: int, share: str) -> None:
        self.used_bytes -= size
        self._used_by[share] -= size
        if not self._used_by[share]:
            del self._used_by[share]


def _key(tenant: str, name: str) -> _PictureName:
    return tenant, hashlib.blake2b(name.encode(), digest_size=16).digest()
