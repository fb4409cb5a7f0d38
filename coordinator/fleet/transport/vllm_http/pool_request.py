"""Translates inputs to pool to a request of a plain vLLM server, and its response to their results."""

from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from tokenwire.errors import EngineFailed, InvalidRequest
from tokenwire.protocol.vllm_names import NUMBER_BYTES
from tokenwire.v1 import inference_pb2 as pb

EMBED_PATH, POOL_PATH = "/v1/embeddings", "/pooling"


def pool_path(pool: pb.Pool) -> str:
    """Return the server's route for a task: only the one for embeddings takes their `dimensions`."""
    return EMBED_PATH if pool.params.task == "embed" else POOL_PATH


def pool_body_of(pool: pb.Pool, request_id: str, model: str) -> dict[str, Any]:
    """Return the request body. Raises InvalidRequest."""
    if pool.second_begins:
        raise InvalidRequest(
            "Pairs of texts whose tokens have types are not supported by a plain vLLM server.", param="model"
        )
    params, ends = pool.params, list(accumulate(pool.lengths))
    body: dict[str, Any] = {
        "request_id": request_id,
        "model": pool.lora.name or model,
        "input": [list(pool.token_ids[end - length : end]) for length, end in zip(pool.lengths, ends, strict=True)],
        "encoding_format": "bytes_only",
        "embed_dtype": params.dtype,
        "endianness": "little",
        "priority": pool.priority,
    }
    if pool_path(pool) == POOL_PATH:
        body["task"] = params.task
    if params.HasField("dimensions"):
        body["dimensions"] = params.dimensions
    if params.HasField("use_activation"):
        body["use_activation"] = params.use_activation
    if pool.HasField("cache_salt"):
        body["cache_salt"] = pool.cache_salt
    return body


def results_of(pool: pb.Pool, content: bytes) -> Iterator[pb.Finish]:
    """Yield the finish of each input: the response has their numbers one after the other, and no shapes.

    Raises EngineFailed for a response of another size.
    """
    has_rows = pool.params.task.startswith("token_")
    rows = list(pool.lengths) if has_rows else [1] * len(pool.lengths)
    width, rest = divmod(len(content), sum(rows) * NUMBER_BYTES[pool.params.dtype])
    if rest or not width:
        raise EngineFailed(f"The server's response has {len(content)} bytes for {sum(rows)} results of equal size.")
    start = 0
    for slot, count in zip(pool.slots, rows, strict=True):
        end = start + count * width * NUMBER_BYTES[pool.params.dtype]
        result = pb.Pooled(shape=[count, width] if has_rows else [width], data=content[start:end])
        yield pb.Finish(slot=slot, reason=pb.FINISH_REASON_STOP, pooled=result)
        start = end
