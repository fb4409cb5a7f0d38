"""The bytes of media that coordinators have put, by digest, within a bound."""

import hashlib
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from tokenwire.errors import InvalidRequest, Overloaded
from tokenwire.v1 import inference_pb2 as pb

_DIGEST_BYTES = 32


class ReceivedMedia:
    """Items by digest. Over the bound those used least recently are dropped: coordinators put them again.

    Those that wait to be processed go after all others: of the tenant that has most of them, those that came last.
    """

    def __init__(self, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        self._items: OrderedDict[bytes, bytes] = OrderedDict()
        self._awaited: dict[bytes, list[str]] = {}
        """Tenants by the items that they wait for, in the order in which these came."""
        self._kept_bytes = 0
        self._arriving_bytes = 0
        self.puts = 0
        """Items that were put."""
        self.received_bytes = 0
        """Their bytes."""

    @property
    def used_bytes(self) -> int:
        """Memory of the items, with those that are arriving."""
        return self._kept_bytes + self._arriving_bytes

    def get(self, digest: bytes) -> bytes | None:
        """Return an item; None if it is not here."""
        data = self._items.get(digest)
        if data is not None:
            self._items.move_to_end(digest)
        return data

    @contextmanager
    def awaited(self, digest: bytes, tenant: str) -> Iterator[None]:
        """Keep an item meanwhile as long as others can be dropped."""
        self._awaited.setdefault(digest, []).append(tenant)
        try:
            yield
        finally:
            self._awaited[digest].remove(tenant)
            if not self._awaited[digest]:
                del self._awaited[digest]

    async def receive(self, chunks: AsyncIterator[pb.PutRequest]) -> None:
        """Store the item of a stream of chunks.

        Raises InvalidRequest if it is not what its first chunk says, Overloaded if there is no memory for it.
        """
        first = await anext(chunks, pb.PutRequest())
        digest, size = first.digest, first.size
        if len(digest) != _DIGEST_BYTES or not size:
            raise InvalidRequest("The first chunk has no SHA-256 digest or no size.")
        if digest in self._items:
            return
        self._reserve(size)
        try:
            data, hashed = bytearray(first.data), hashlib.sha256(first.data)
            async for chunk in chunks:
                data += chunk.data
                hashed.update(chunk.data)  # chunk by chunk: tokens pass through the same event loop
                if len(data) > size:
                    break
            if len(data) != size or hashed.digest() != digest:
                raise InvalidRequest("The bytes are not those of the size and the digest.")
        finally:
            self._arriving_bytes -= size
        self.puts += 1
        self.received_bytes += size
        if digest not in self._items:
            self._items[digest] = bytes(data)
            self._kept_bytes += size

    def _reserve(self, size: int) -> None:
        while self.used_bytes + size > self._memory_bytes and self._items:
            self._kept_bytes -= len(self._items.pop(self._next_dropped()))
        if self.used_bytes + size > self._memory_bytes:
            raise Overloaded(f"There is no memory for {size} bytes of media (--received-media-mb).", retry_after_s=1.0)
        self._arriving_bytes += size

    def _next_dropped(self) -> bytes:
        for digest in self._items:
            if digest not in self._awaited:
                return digest
        sizes = Counter[str]()
        for digest, data in self._items.items():
            sizes[self._awaited[digest][0]] += len(data)
        tenant = max(sizes, key=sizes.__getitem__)
        found = (each for each in reversed(self._awaited) if each in self._items)
        return next(each for each in found if self._awaited[each][0] == tenant)
