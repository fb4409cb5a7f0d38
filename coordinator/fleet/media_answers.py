"""Checks what a worker answers to calls for media against what it was asked, before anything is made of it."""

from collections.abc import AsyncIterable, Iterable, Sequence
from typing import NamedTuple

from tokenwire.coordinator.media.content import MediaContent
from tokenwire.errors import PromptTooLong, ProtocolError
from tokenwire.peer_auth.grpc_options import FEATURES_PART_BYTES, MOST_MEDIA_BYTES, MOST_TENSOR_BYTES
from tokenwire.peer_auth.message_parts import UNREADABLE
from tokenwire.v1 import inference_pb2 as pb

MOST_TOKEN_IDS = MOST_MEDIA_BYTES // 3 - 2**16
"""Of a prompt with media. No vocabulary has ids that take more than three bytes; there is room for the places, too."""
_MOST_NAMES_BYTES = MOST_MEDIA_BYTES
"""Of features without tensors: the names and places of pictures."""
_MOST_FEATURES_BYTES = _MOST_NAMES_BYTES + MOST_TENSOR_BYTES * 4 // 3
"""Of features with tensors, which are base64."""


class Expansion(NamedTuple):
    """A prompt as an engine sees it."""

    token_ids: Sequence[int]
    spans: Sequence[tuple[int, int]]
    """Position and length of each of its items."""
    features_json: bytes = b""
    """Features of a rendered request, if they were asked for."""


def check_missing(missing: Sequence[bytes], items: Iterable[MediaContent]) -> None:
    """Check what a worker says that it lacks of a request's items. Raises ProtocolError."""
    named = {item.digest for item in items}
    if len(missing) > len(named) or not named.issuperset(missing):
        raise ProtocolError(
            f"the worker lacks {len(missing)} media, some of which are not among the {len(named)} needed"
        )


async def rendered(answer: AsyncIterable[pb.RenderResponse | None], mm_payload: str) -> tuple[pb.ExpandResponse, bytes]:
    """Return the first part of an answer to Render, and the features that the others have. Raises ProtocolError."""
    most = _MOST_FEATURES_BYTES if mm_payload == "tensors" else _MOST_NAMES_BYTES
    first: pb.ExpandResponse | None = None
    features = bytearray()
    async for response in answer:
        if response is None:
            raise ProtocolError(f"the worker rendered pictures to {UNREADABLE}")
        part = response.part
        if first is None:
            first = part
            continue
        is_whole = len(features) % FEATURES_PART_BYTES == 0
        if not is_whole or not part.features_json or part.token_ids or part.spans or part.missing:
            raise ProtocolError("the worker rendered pictures to parts that cannot be")
        features += part.features_json
        if len(features) > most:
            raise ProtocolError(f"the worker rendered pictures to more than {most} bytes")
    if first is None:
        raise ProtocolError("the worker rendered pictures to nothing")
    return first, bytes(features)


def expansion_of(
    response: pb.ExpandResponse, items: Sequence[MediaContent], max_token_ids: int, features_json: bytes | None = None
) -> Expansion:
    """Return what a worker made of a prompt with these items, with the features that came separately if asked for.

    Raises ProtocolError for a response that cannot be, PromptTooLong for one that says so.
    """
    length, places = len(response.token_ids), len(response.spans)
    if response.length > max_token_ids and not length and not places:
        raise PromptTooLong(response.length, max_token_ids)
    if length > max_token_ids:
        raise ProtocolError(f"the worker expanded a prompt to {length} ids, where it may have {max_token_ids}")
    if places != len(items):
        raise ProtocolError(f"the worker has put {len(items)} media at {places} places")
    spans = [(span.offset, span.length) for span in response.spans]
    ends = [0, *(offset + count for offset, count in spans)]
    in_order = all(offset >= end for (offset, _), end in zip(spans, ends, strict=False))
    is_empty = any(not count for _, count in spans)
    if not in_order or is_empty or ends[-1] > length:
        raise ProtocolError(f"the worker has put {len(items)} media at {spans[:8]} of {length} ids")
    if response.features_json or features_json == b"":
        raise ProtocolError("the worker returned features of pictures that were not asked for, or none that were")
    return Expansion(response.token_ids[:], spans, features_json or b"")
