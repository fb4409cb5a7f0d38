"""Keeps the bytes of pictures by digest: as long as a request has them, and after that while there is memory."""

import hashlib
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tokenwire.coordinator.media.content import MediaContent
from tokenwire.errors import Overloaded, mib

_RETRY_AFTER_S = 1.0
_MOST_NAMES = 65_536
NAMES_BYTES = 256 * _MOST_NAMES
"""What all names take, about."""

_PictureName = tuple[str, bytes]
"""A tenant, and the digest of the name that it gave: clients choose how long that is."""


class MediaStore:
    """Pictures within a bound of bytes, each once; those that nobody has may be dropped, least recently used first."""

    def __init__(self, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        self.used_bytes = 0
        """Of all pictures that are kept, that a request has, or that are arriving."""
        self._live: weakref.WeakValueDictionary[bytes, MediaContent] = weakref.WeakValueDictionary()
        self._kept: OrderedDict[bytes, MediaContent] = OrderedDict()
        self._names: OrderedDict[_PictureName, bytes] = OrderedDict()
        """Digests by what tenants call them: what one tenant names, no other finds."""

    def add(self, content: MediaContent) -> MediaContent:
        """Keep a picture; return it, or the one with the same bytes. Raises Overloaded if there is no memory."""
        known = self._live.get(content.digest)
        if known is None:
            self.count(content, len(content.data))
            known = self._live[content.digest] = content
        self._kept[known.digest] = known
        self._kept.move_to_end(known.digest)
        return known

    def count(self, holder: object, size: int) -> None:
        """Count bytes for as long as anybody has what holds them. Raises Overloaded if there is no memory."""
        self._take(size)
        weakref.finalize(holder, self._free, size)

    @contextmanager
    def arriving(self) -> Iterator[Callable[[int], None]]:
        """Count a picture that is not added yet, meanwhile, by the function that this yields.

        It takes the number of further bytes, and raises Overloaded if there is no memory for them.
        """
        arrived = 0

        def count(more: int) -> None:
            nonlocal arrived
            self._take(more)
            arrived += more

        try:
            yield count
        finally:
            self._free(arrived)

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

    def _take(self, size: int) -> None:
        while self.used_bytes + size > self._memory_bytes and self._kept:
            self._kept.popitem(last=False)  # frees its bytes, unless a request has them
        if self.used_bytes + size > self._memory_bytes:
            raise Overloaded(
                f"The pictures of requests take {mib(self.used_bytes)} of at most {mib(self._memory_bytes)} "
                f"(--media-memory-mb): there is no room for {mib(size)} more.",
                retry_after_s=_RETRY_AFTER_S,
            )
        self.used_bytes += size

    def _free(self, size: int) -> None:
        self.used_bytes -= size


def _key(tenant: str, name: str) -> _PictureName:
    return tenant, hashlib.blake2b(name.encode(), digest_size=16).digest()
