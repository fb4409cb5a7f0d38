"""Ids of a prompt as bytes, which are copied; a field of numbers makes objects of them, one by one.

That would take most of what sending a long conversation costs.
"""

import sys
from array import array
from collections.abc import Sequence

from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb


def pack_ids(token_ids: Sequence[int]) -> bytes:
    """Return ids as Submit.packed_prompt_token_ids has them."""
    ids = token_ids if isinstance(token_ids, array) else array("I", token_ids)
    return _little_endian(ids).tobytes()


def prompt_ids(submit: pb.Submit) -> Sequence[int]:
    """Return the prompt of a request, however it has it. Raises InvalidRequest."""
    packed = submit.packed_prompt_token_ids
    if not packed:
        return submit.prompt_token_ids
    ids = array("I")
    if len(packed) % ids.itemsize:
        raise InvalidRequest(f"{len(packed)} bytes are no ids of {ids.itemsize} bytes each.", param="prompt")
    ids.frombytes(packed)
    return _little_endian(ids)


def _little_endian(ids: "array[int]") -> "array[int]":
    if sys.byteorder == "big":
        ids = ids[:]
        ids.byteswap()
    return ids
