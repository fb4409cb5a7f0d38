"""Media of simulated prompts: each picture becomes a fixed number of ids, which depend on its bytes."""

from collections.abc import AsyncIterator, Sequence

from prometheus_client.core import Metric

from tokenwire.errors import InvalidRequest, MediaMissing
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.media import EngineMedia, media_metrics
from tokenwire.worker.media.received import ReceivedMedia
from tokenwire.worker.simulated_engine.model import SimulatedModel

PLACEHOLDER = "<image>"
"""What stands for a picture in a chat template's text."""
MOST_PICTURES = 16


class SimulatedMedia(EngineMedia):
    """Expands placeholders; pictures are stored and never decoded."""

    def __init__(self, model: SimulatedModel, tokens: int, memory_bytes: int) -> None:
        """`tokens`: ids for each picture; `memory_bytes` is for what coordinators put."""
        self._placeholder = model.tokenizer().encode(PLACEHOLDER, add_special_tokens=False).ids
        self._words = model.words
        self._tokens = tokens
        self._received = ReceivedMedia(memory_bytes)

    def kinds(self) -> Sequence[pb.MediaKind]:
        """Return the only kind."""
        return [pb.MediaKind(modality="image", limit=MOST_PICTURES, placeholders=[PLACEHOLDER])]

    async def put(self, chunks: AsyncIterator[pb.PutRequest]) -> None:
        """Store an item."""
        await self._received.receive(chunks)

    def metrics(self) -> Sequence[Metric]:
        """Return Prometheus metrics."""
        return media_metrics(self._received, None)

    async def expand(self, request: pb.ExpandRequest) -> pb.ExpandResponse:
        """Return the expanded prompt."""
        token_ids, spans = self.expanded(request.token_ids, request.media)
        return pb.ExpandResponse(token_ids=token_ids, spans=spans)

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
