"""The bytes of one picture, and a prompt that has pictures, as workers get them."""

import hashlib
from collections.abc import Sequence

from tokenwire.process.value_class import value_class
from tokenwire.protocol.prefix_hash import media_marker
from tokenwire.v1 import inference_pb2 as pb

IMAGE = "image"
IMAGE_EMBEDS = "image_embeds"
"""Embeddings of a picture in its place: the modality, and the type of the parts that bring them."""


class MediaContent:
    """Bytes with their digest. Not a value: a store finds it for as long as anybody holds it."""

    __slots__ = ("__weakref__", "data", "digest", "modality")

    def __init__(self, data: bytes, modality: str = IMAGE, digest: bytes | None = None) -> None:
        """`digest`: the SHA-256 of the bytes, if it is known."""
        self.data = data
        self.modality = modality
        self.digest = digest or hashlib.sha256(data).digest()


class MediaFeatures:
    """What a rendered request has of its media, as JSON. A store counts it for as long as anybody holds it."""

    __slots__ = ("__weakref__", "json")

    def __init__(self, json: bytes) -> None:
        self.json = json


@value_class
class MediaPrompt:
    """The media of a prompt, and the prompt with one placeholder for each of them."""

    items: Sequence[MediaContent]
    """In the order of their placeholders."""
    token_ids: Sequence[int]
    """The prompt before its placeholders are expanded."""
    length: int
    """Number of ids of the expanded prompt."""
    spans: Sequence[tuple[int, int]]
    """Position and length of each item in the expanded prompt."""
    options_json: str | None = None
    """Options of this request for loading and processing; None: the model's."""
    expanded_by: str = ""
    """Instance id of the worker that has processed them for this prompt."""

    def messages(self) -> list[pb.MediaItem]:
        """Return what names the items to a worker."""
        return [media_item(item, self.options_json) for item in self.items]

    def expanded_length(self, count: int, items: int) -> int:
        """Return how long the first ids before expansion are after it, which have the first items."""
        placeholder = self._placeholder_length()
        return count + sum(length - placeholder for _, length in self.spans[:items])

    def leaves_placeholder(self) -> bool:
        """Return whether the prompt has more placeholders than items, behind that of the last one."""
        width = self._placeholder_length()
        start = self.spans[-1][0] - sum(length - width for _, length in self.spans[:-1])
        placeholder, rest = self.token_ids[start : start + width], self.token_ids[start + width :]
        return any(rest[i : i + width] == placeholder for i in range(len(rest) - width + 1)) if width else False

    def _placeholder_length(self) -> int:
        # What an item takes the place of has the same length for all.
        return (sum(length for _, length in self.spans) + len(self.token_ids) - self.length) // len(self.items)

    def collapsed(self, token_ids: Sequence[int]) -> Sequence[int]:
        """Return the expanded prompt, and what was generated after it, with placeholders instead of expansions."""
        return [*self.token_ids, *token_ids[self.length :]]

    def marked(self, token_ids: Sequence[int]) -> Sequence[int]:
        """Return the expanded prompt for names of prefixes, in which the first id of each item stands for its bytes."""
        marked = [*token_ids]
        for item, (offset, length) in zip(self.items, self.spans, strict=True):
            if length:
                name = item.digest.hex()
                marked[offset] = media_marker(name if self.options_json is None else f"{name} {self.options_json}")
        return marked

    @property
    def tokens(self) -> dict[str, int]:
        """Ids of the expanded prompt that stand for items, by modality."""
        counts: dict[str, int] = {}
        for item, (_, length) in zip(self.items, self.spans, strict=True):
            # Embeddings count as what they stand for, as in vLLM.
            modality = item.modality.removesuffix("_embeds")
            counts[modality] = counts.get(modality, 0) + length
        return counts


def media_item(item: MediaContent, options_json: str | None) -> pb.MediaItem:
    """Return what names an item to a worker."""
    return pb.MediaItem(modality=item.modality, digest=item.digest, options_json=options_json)
