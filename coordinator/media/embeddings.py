"""Embeddings that requests bring in the place of pictures: their bytes, of which the coordinator makes nothing."""

import json
import re
from collections.abc import Mapping
from typing import Any

import pybase64

from tokenwire.coordinator.media.content import IMAGE_EMBEDS
from tokenwire.errors import InvalidRequest

# What torch.save and numpy.save write, and what they wrote before 1.6: never what a picture begins with.
_STARTS = b"PK\x03\x04", b"\x93NUMPY", b"\x80"
_MOST_FIELDS = 8
_MOST_NUMBERS = 64
_NAME = re.compile(r"\w{1,64}", re.ASCII)

EmbeddingSource = str | Mapping[str, Any]
"""A tensor in base64; or several by name, some of which may be lists of numbers."""


def encoded_chars(source: EmbeddingSource) -> int:
    """Return how many characters of base64 there are."""
    values = [source] if isinstance(source, str) else source.values()
    return sum(len(each) for each in values if isinstance(each, str))


def embedding_bytes(source: EmbeddingSource) -> bytes:
    """Return what workers get: the tensor's bytes; or a line of JSON with sizes and numbers, and the tensors' bytes.

    Raises InvalidRequest.
    """
    if isinstance(source, str):
        return _tensor(source)
    if not 0 < len(source) <= _MOST_FIELDS or not all(
        isinstance(name, str) and _NAME.fullmatch(name) for name in source
    ):
        raise InvalidRequest(f"`{IMAGE_EMBEDS}` must have 1 to {_MOST_FIELDS} fields with names.", param="messages")
    head: dict[str, Any] = {}
    tensors = []
    for name in sorted(source):
        value = source[name]
        if isinstance(value, str):
            tensors.append(_tensor(value))
            head[name] = len(tensors[-1])
        elif (
            isinstance(value, list)
            and len(value) <= _MOST_NUMBERS
            and all(type(each) in (int, float) for each in value)
        ):
            head[name] = value
        else:
            raise InvalidRequest(
                f"`{IMAGE_EMBEDS}.{name}` must be a base64 string or a list of at most {_MOST_NUMBERS} numbers.",
                param="messages",
            )
    return b"".join((json.dumps(head, separators=(",", ":")).encode(), b"\n", *tensors))


def _tensor(text: str) -> bytes:
    try:
        data = pybase64.b64decode(text, validate=True)
    except ValueError as error:
        raise InvalidRequest(str(error), param="messages") from error
    if not data.startswith(_STARTS):
        raise InvalidRequest(
            f"`{IMAGE_EMBEDS}` must be tensors as torch.save or numpy.save write them, in base64.", param="messages"
        )
    return data
