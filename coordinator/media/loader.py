"""Gets the picture that a request names: decodes or fetches it, checks what it is, and keeps it."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext

import pybase64

from tokenwire.coordinator.media.content import IMAGE, IMAGE_EMBEDS, MediaContent
from tokenwire.coordinator.media.embeddings import EmbeddingSource, embedding_bytes, encoded_chars
from tokenwire.coordinator.media.fetching import GuardedFetcher, too_large
from tokenwire.coordinator.media.image_header import read_header
from tokenwire.coordinator.media.settings import MediaSettings
from tokenwire.coordinator.media.store import MediaStore
from tokenwire.errors import InvalidRequest, TokenwireError
from tokenwire.process.fair_turns import FairTurns
from tokenwire.process.threads import in_thread
from tokenwire.process.value_class import value_class

_INLINE_BYTES = 128 * 1024
"""Smaller pictures are decoded and hashed on the event loop, in less than a millisecond."""
_LARGE_CHARS = 2**20
_MOST_LARGE = 2
"""Pictures in long data: URLs that are decoded at a time: each takes a few times its size meanwhile."""
_MOST_WAITING = 1024
_MOST_NAME_CHARS = 1024


@value_class
class MediaReference:
    """A picture as a request names it."""

    source: EmbeddingSource | None
    """A URL, or what embeddings are; None: one that the tenant has named before."""
    uuid: str | None = None
    """The tenant's own name for it."""
    modality: str = IMAGE
    position: int = 0
    """Its place among those of the request."""

    @property
    def key(self) -> object:
        """What is equal of references to the same."""
        return (self.modality, self.source) if isinstance(self.source, str) else self.position


class MediaLoader:
    """Loads pictures for tenants."""

    def __init__(self, settings: MediaSettings, fetcher: GuardedFetcher | None = None) -> None:
        self.store = MediaStore(settings.memory_bytes)
        self.outcomes: Counter[tuple[str, str]] = Counter()
        """How many pictures were loaded, by source (data, fetch, uuid, embeds) and outcome (ok, refused, failed)."""
        self.fetched_bytes = 0
        self._settings = settings
        self._large = asyncio.Semaphore(_MOST_LARGE)
        self._fetcher = fetcher or GuardedFetcher(settings)
        self._turns = FairTurns(
            settings.max_fetches,
            settings.tenant_fetches,
            _MOST_WAITING,
            f"{_MOST_WAITING} pictures of this tenant wait to be fetched already, the most that may: at a time "
            f"{settings.tenant_fetches} are (--max-media-fetches-per-tenant), of all tenants {settings.max_fetches} "
            "(--max-media-fetches).",
        )

    async def close(self) -> None:
        """Close connections."""
        await self._fetcher.close()

    async def load(self, references: Sequence[MediaReference], tenant: str, share: str = "") -> list[MediaContent]:
        """Return the pictures of a request, each of its URLs fetched once.

        The tenant is whose names these are, the share whose turn it is to fetch, and whose memory it takes: without
        keys all are one tenant.

        Raises InvalidRequest, MediaUnavailable or Overloaded; the first picture that cannot be loaded decides.
        """
        tasks: dict[object, asyncio.Task[MediaContent]] = {}
        try:
            for each in references:
                if each.source is not None and each.key not in tasks:
                    tasks[each.key] = asyncio.create_task(self._loaded(each.source, each.modality, share))
            return [
                self._named(each, tenant) if each.source is None else self._name(each, tenant, await tasks[each.key])
                for each in references
            ]
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)
            tasks.clear()  # their errors refer to this frame, and with it to what they could not load

    def _name(self, reference: MediaReference, tenant: str, content: MediaContent) -> MediaContent:
        if reference.uuid is not None:
            if len(reference.uuid) > _MOST_NAME_CHARS:
                raise InvalidRequest(
                    f"A uuid has {len(reference.uuid)} characters, more than {_MOST_NAME_CHARS}.", param="messages"
                )
            self.store.name(tenant, reference.uuid, content)
        return content

    def _named(self, reference: MediaReference, tenant: str) -> MediaContent:
        content = self.store.find(tenant, reference.uuid or "")
        if content is not None and content.modality != reference.modality:
            content = None
        self.outcomes["uuid", "refused" if content is None else "ok"] += 1
        if content is None:
            raise InvalidRequest(
                f"Cache miss for image at index {reference.position} but data is not provided.", param="messages"
            )
        return content

    async def _loaded(self, source: EmbeddingSource, modality: str, share: str) -> MediaContent:
        label, chars = _origin(source, modality)
        try:
            async with self._large if chars > _LARGE_CHARS else nullcontext():
                with self.store.arriving(share) as count:
                    if not isinstance(source, str) or modality == IMAGE_EMBEDS:
                        content = await self._embeddings(source, chars, count)
                    elif label == "data":
                        content = await self._checked(await self._decode(source, count))
                    else:
                        content = await self._checked(await self._fetch(source, share, count))
                content = self.store.add(content, share)
        except InvalidRequest as error:
            self.outcomes[label, "refused" if error.http_status == 400 else "failed"] += 1
            raise
        except TokenwireError:
            self.outcomes[label, "failed"] += 1
            raise
        self.outcomes[label, "ok"] += 1
        return content

    async def _embeddings(self, source: EmbeddingSource, chars: int, count: Callable[[int], None]) -> MediaContent:
        size = chars * 3 // 4
        if size > self._settings.max_bytes:
            raise too_large(size, self._settings.max_bytes)
        count(size)

        def content() -> MediaContent:
            return MediaContent(embedding_bytes(source), IMAGE_EMBEDS)

        return content() if size <= _INLINE_BYTES else await in_thread(content)

    async def _fetch(self, url: str, share: str, count: Callable[[int], None]) -> bytes:
        if not self._settings.fetch:
            raise InvalidRequest("This server fetches no pictures: send them as data: URLs.", param="messages")
        async with self._turns.turn(share):
            data = await self._fetcher.fetch(url, count, share)
        self.fetched_bytes += len(data)
        return data

    async def _decode(self, url: str, count: Callable[[int], None]) -> bytes:
        start = url.find(",") + 1
        if not start or not url.endswith(";base64", 0, start - 1):
            raise InvalidRequest("Only base64 data URLs are supported for now.", param="messages")
        size = (len(url) - start) * 3 // 4
        if size > self._settings.max_bytes + 2:
            raise too_large(size - 2, self._settings.max_bytes)
        count(size)
        try:
            if size <= _INLINE_BYTES:
                return pybase64.b64decode(url[start:], validate=True)
            return await in_thread(lambda: pybase64.b64decode(url[start:], validate=True))
        except ValueError as error:
            raise InvalidRequest(str(error), param="messages") from error

    async def _checked(self, data: bytes) -> MediaContent:
        """Return a picture that may be decoded."""
        if len(data) > self._settings.max_bytes:
            raise too_large(len(data), self._settings.max_bytes)
        header = read_header(data) if len(data) <= _INLINE_BYTES else await in_thread(read_header, data)
        if header.pixels > self._settings.max_pixels:
            raise InvalidRequest(
                f"Image dimensions {header.width}x{header.height} ({header.pixels} pixels) exceed the maximum of "
                f"{self._settings.max_pixels} pixels (--max-media-pixels).",
                param="messages",
            )
        return MediaContent(data) if len(data) <= _INLINE_BYTES else await in_thread(MediaContent, data)


def _origin(source: EmbeddingSource, modality: str) -> tuple[str, int]:
    """Return where something comes from, and how many characters of base64 it has."""
    if modality == IMAGE_EMBEDS or not isinstance(source, str):
        return "embeds", encoded_chars(source)
    return ("data", len(source)) if source[:5].lower() == "data:" else ("fetch", 0)
