"""What a plain vLLM server has of the media of requests: it gets each item's bytes once, and its name from then on."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from tokenwire.coordinator.fleet.transport.vllm_http.media_body import MediaPart
from tokenwire.coordinator.fleet.transport.vllm_http.unsent_media import UnsentMedia
from tokenwire.errors import InvalidRequest, MediaMissing
from tokenwire.v1 import inference_pb2 as pb

SentResult = TypeVar("SentResult")

_MOST_KNOWN = 65_536
_CACHE_MISS = "Cache miss for "
"""How the server's message begins if it has dropped an item, and got its name alone."""
_MOST_MISSES = 3
"""In a row, after which a server is taken to keep nothing."""


class ServerMedia:
    """Sends requests with media."""

    def __init__(self, store: UnsentMedia) -> None:
        self._store = store
        self._known: OrderedDict[bytes, None] = OrderedDict()
        """Digests of what the server got, the latest last."""
        self._misses = 0

    async def send(
        self, items: Sequence[pb.MediaItem], request: Callable[[Sequence[MediaPart]], Awaitable[SentResult]]
    ) -> SentResult:
        """Make a request with these items: once more, with their bytes, if the server has dropped one.

        Raises MediaMissing if their bytes are needed, and not there, or what the request raises.
        """
        digests = [item.digest for item in items]
        parts = self._parts(digests)
        try:
            result = await request(parts)
        except InvalidRequest as error:
            if all(part.data is not None for part in parts) or _CACHE_MISS not in error.message:
                raise
            self._misses += 1
            for digest in digests:
                self._known.pop(digest, None)
            result = await request(self._parts(digests))
        else:
            if any(part.data is None for part in parts):
                self._misses = 0
        self._remember(digests)
        return result

    def missing(self, items: Iterable[pb.MediaItem]) -> list[bytes]:
        """Return the digests of those items that neither the server nor the store has."""
        digests = dict.fromkeys(item.digest for item in items)
        return [each for each in digests if not self._keeps(each) and self._store.get(each) is None]

    def _parts(self, digests: Sequence[bytes]) -> list[MediaPart]:
        parts, missing = [], []
        for digest in digests:
            data = None if self._keeps(digest) else self._store.get(digest)
            if data is None and not self._keeps(digest):
                missing.append(digest)
            parts.append(MediaPart(self._store.name(digest), data))
        if missing:
            raise MediaMissing(missing)
        return parts

    def _keeps(self, digest: bytes) -> bool:
        return digest in self._known and self._misses < _MOST_MISSES

    def _remember(self, digests: Iterable[bytes]) -> None:
        for digest in digests:
            self._known[digest] = None
            self._known.move_to_end(digest)
        while len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)
