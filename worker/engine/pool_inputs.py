"""Takes a pooling command apart."""

from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb


def inputs_of(pool: pb.Pool) -> list[list[int]]:
    """Return the ids of each input of a command. Raises InvalidRequest if they do not add up."""
    lengths, token_ids = list(pool.lengths), list(pool.token_ids)
    if len(lengths) != len(pool.slots) or sum(lengths) != len(token_ids):
        raise InvalidRequest(f"Request {pool.request_id} has {len(token_ids)} ids for lengths {lengths[:10]}.")
    inputs, start = [], 0
    for length in lengths:
        inputs.append(token_ids[start : start + length])
        start += length
    return inputs
