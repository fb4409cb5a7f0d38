"""Media of simulated prompts: each picture becomes a fixed number of ids, which depend on its bytes."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence

from prometheus_client.core import Metric

from tokenwire.errors import InvalidRequest, MediaMissing
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.media import EngineMedia, processing_metrics, received_metrics
from tokenwire.worker.media.received import ReceivedMedia
from tokenwire.worker.simulated_engine.model import SimulatedModel

PLACEHOLDER = "<image>"
"""What stands for a picture in a chat template's text."""
MOST_PICTURES = 16
_PROCESSED = 4096
"""The pictures that are known to have been processed."""


class SimulatedProcessing:
    """Takes the time of processing pictures that are new, any number of them side by side."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._processed = deque[bytes](maxlen=_PROCESSED)
        self.waiting = self.jobs = self.died = 0
        self.busy_s = 0.0

    async def process(self, digests: Iterable[bytes]) -> None:
        """Return when these pictures have been processed."""
        fresh = set(digests).difference(self._processed)
        if not fresh:
            return
        self.waiting += len(fresh)
        try:
            await asyncio.sleep(self._seconds)
        finally:
            self.waiting -= len(fresh)
            self.jobs += len(fresh)
            self.busy_s += self._seconds * len(fresh)
        self._processed.extend(fresh.difference(self._processed))


class SimulatedMedia(EngineMedia):
    """Expands placeholders; pictures are stored and never decoded."""

    def __init__(
        self, model: SimulatedModel, tokens: int, memory_bytes: int, seconds: float = 0.0, embeds: bool = False
    ) -> None:
        """`tokens`: ids for each picture, which takes `seconds`; `memory_bytes` is for what coordinators put.

        embeds: whether embeddings are taken in the place of pictures.
        """
        self._placeholder = model.tokenizer().encode(PLACEHOLDER, add_special_tokens=False).ids
        self._words = model.words
        self._tokens = tokens
        self._modalities = ("image", "image_embeds") if embeds else ("image",)
        self._received = ReceivedMedia(memory_bytes)
        self._processing = SimulatedProcessing(seconds) if seconds else None

    def kinds(self) -> Sequence[pb.MediaKind]:
        """Return the kinds."""
        return [
            pb.MediaKind(modality=each, limit=MOST_PICTURES, placeholders=[PLACEHOLDER]) for each in self._modalities
        ]

    async def put(self, chunks: AsyncIterator[pb.PutRequest]) -> None:
        """Store an item."""
        await self._received.receive(chunks)

    def metrics(self) -> Sequence[Metric]:
        """Return Prometheus metrics."""
        processing = [] if self._processing is None else processing_metrics(self._processing)
        return [*received_metrics(self._received), *processing]

    async def expand(self, request: pb.ExpandRequest) -> pb.ExpandResponse:
        """Return the expanded prompt."""
        token_ids, spans = await self.prompt(request.token_ids, request.media)
        features = _features_json(request.media, spans) if request.mm_payload else b""
        return pb.ExpandResponse(token_ids=token_ids, spans=spans, features_json=features)

    async def prompt(
        self, token_ids: Sequence[int], media: Sequence[pb.MediaItem], end: int | None = None
    ) -> tuple[list[int], list[pb.MediaSpan]]:
        """Return what `expanded` does, once the pictures have been processed."""
        made = self.expanded(token_ids, media, end)
        if self._processing is not None:
            await self._processing.process(each.digest for each in media)
        return made

    def expanded(
        self, token_ids: Sequence[int], media: Sequence[pb.MediaItem], end: int | None = None
    ) -> tuple[list[int], list[pb.MediaSpan]]:
        """Return a prompt with the ids of its pictures, whose placeholders are before `end`, and their places.

        Raises InvalidRequest or MediaMissing.
        """
        if len(media) > MOST_PICTURES:
            raise InvalidRequest(f"At most {MOST_PICTURES} image(s) may be provided in one prompt.", param="messages")
        missing = [each.digest for each in media if self._received.get(each.digest) is None]
        if missing:
            raise MediaMissing(missing)
        end = len(token_ids) if end is None else end
        width, position = len(self._placeholder), 0
        made: list[int] = []
        spans: list[pb.MediaSpan] = []
        while position < end:
            is_picture = len(spans) < len(media) and list(token_ids[position : position + width]) == self._placeholder
            if is_picture:
                spans.append(pb.MediaSpan(offset=len(made), length=self._tokens))
                made += self._ids(media[len(spans) - 1].digest)
                position += width
            else:
                made.append(token_ids[position])
                position += 1
        if len(spans) < len(media):
            raise InvalidRequest(
                f"The prompt has {len(spans)} placeholders for {len(media)} pictures.", param="messages"
            )
        return [*made, *token_ids[end:]], spans

    def _ids(self, digest: bytes) -> list[int]:
        return [self._words[(digest[i % len(digest)] + i) % len(self._words)] for i in range(self._tokens)]


def _features_json(media: Sequence[pb.MediaItem], spans: Sequence[pb.MediaSpan]) -> bytes:
    """Return vLLM's MultiModalFeatures; there are no tensors."""
    places = [{"offset": span.offset, "length": span.length} for span in spans]
    names = [item.digest.hex() for item in media]
    named = {"mm_hashes": {"image": names}, "mm_placeholders": {"image": places}}
    return json.dumps({**named, "kwargs_data": None, "mm_metadata": None}).encode()
