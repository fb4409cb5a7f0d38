"""Writes results as responses: as JSON with numbers or base64, or as bytes."""

import json
import sys
from array import array
from binascii import b2a_base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from starlette.responses import Response

from tokenwire.coordinator.api.json_text import json_bytes
from tokenwire.coordinator.api.long_response import long_response
from tokenwire.coordinator.api.pooling.fields import EncodingFields
from tokenwire.coordinator.pooling.types import PooledResult, Results, numbers
from tokenwire.protocol.vllm_names import NUMBER_BYTES

_TYPECODES = {2: "H", 4: "I"}
_GROUP_BYTES = 16 * 1024
"""Of results, about, that are made to JSON at a time."""
_BYTES_PER_FLOAT = 32
"""Of a number in JSON, with what it takes until it is written."""


def wire_dtype(fields: EncodingFields) -> str:
    """Return the type in which workers send the numbers: JSON has those of float32."""
    return "float32" if fields.encoding_format == "float" else fields.embed_dtype


def bytes_per_number(fields: EncodingFields) -> int:
    """Return about what a number takes until the response is sent."""
    return _BYTES_PER_FLOAT if fields.encoding_format == "float" else 4 * NUMBER_BYTES[fields.embed_dtype]


def encoded(results: Results, fields: EncodingFields, body: Mapping[str, Any], kind: str, name: str) -> Response:
    """Return the response: `body` with the results as objects of a kind, each with its numbers under a name.

    As bytes it has only the numbers, and the rest in a header.
    """
    if fields.encoding_format in ("bytes", "bytes_only"):
        return _as_bytes(results, fields, body)
    as_floats, swaps = fields.encoding_format == "float", _swaps(fields)
    text = f'{{"index":%d,"object":"{kind}","{name}":"%b"}}'.encode()

    def elements() -> Iterator[dict[str, Any] | bytes]:
        for first, some in _groups(results.pooled):
            if as_floats:
                objects = [
                    {"index": index, "object": kind, name: floats(result.data, result.shape)}
                    for index, result in enumerate(some, first)
                ]
                yield objects[0] if len(objects) == 1 else json_bytes(objects)[1:-1]
            else:  # base64 needs no escapes
                data = (_swapped(result.data, fields) if swaps else result.data for result in some)
                yield b",".join(
                    [text % (index, b2a_base64(each, newline=False)) for index, each in enumerate(data, first)]
                )

    return long_response({**body, "data": elements()}, "data")


def _groups(pooled: Sequence[PooledResult]) -> Iterator[tuple[int, Sequence[PooledResult]]]:
    """Yield results that become a piece of JSON together, with the position of the first."""
    size = max(1, _GROUP_BYTES // max(1, len(pooled[0].data))) if pooled else 1
    return ((start, pooled[start : start + size]) for start in range(0, len(pooled), size))


def floats(data: bytes, shape: Sequence[int]) -> list[Any]:
    """Return numbers as a list, or as a list of rows."""
    values = numbers(data).tolist()
    if len(shape) == 1:
        return values
    width = shape[1]
    return [values[start : start + width] for start in range(0, len(values), width)]


def _swaps(fields: EncodingFields) -> bool:
    """Return whether the requested order of bytes is not that of the wire."""
    order = sys.byteorder if fields.endianness == "native" else fields.endianness
    return order == "big" and NUMBER_BYTES[fields.embed_dtype] > 1


def _swapped(data: bytes, fields: EncodingFields) -> bytes:
    """Return little-endian numbers as big-endian ones."""
    values = array(_TYPECODES[NUMBER_BYTES[fields.embed_dtype]], data)
    values.byteswap()
    return values.tobytes()


def _as_bytes(results: Results, fields: EncodingFields, body: Mapping[str, Any]) -> Response:
    parts, items, start, swaps = [], [], 0, _swaps(fields)
    for index, result in enumerate(results.pooled):
        parts.append(_swapped(result.data, fields) if swaps else result.data)
        end = start + len(result.data)
        shown = {"index": index, "embed_dtype": fields.embed_dtype, "endianness": fields.endianness}
        items.append({**shown, "start": start, "end": end, "shape": [*result.shape]})
        start = end
    headers = None
    if fields.encoding_format == "bytes":
        shown = {name: body[name] for name in ("id", "created", "model")}
        tokens = results.prompt_tokens
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        headers = {"metadata": json.dumps({**shown, "data": items, "usage": usage})}
    return Response(b"".join(parts), headers=headers, media_type="application/octet-stream")
