"""Ids of a prompt as bytes, which are copied; a field of numbers makes objects of them, one by one.

That would take most of what sending a long conversation costs.
"""

import sys
from array import array
from collections.abc import Sequence

from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb


def prompt_ids(submit: pb.Submit) -> Sequence[int]:
    """Return the prompt of a request, as bytes or as numbers. Raises InvalidRequest."""
    packed = submit.packed_prompt_token_ids
    if not packed:
        return submit.prompt_token_ids
    ids = array("I")
    if len(packed) % ids.itemsize:
        raise InvalidRequest(f"{len(packed)} bytes are no ids of {ids.itemsize} bytes each.", param="prompt")
    ids.frombytes(packed)
    if sys.byteorder == "big":
        ids.byteswap()
    return ids
