"""A model that embeds digits, and results of it."""

import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.coordinator.fakes import served_model
from tokenwire.coordinator.pooling.types import Input, PooledResult, PoolingRequest
from tokenwire.coordinator.types import ServedModel
from tokenwire.v1 import inference_pb2 as pb

PARAMS = pb.PoolingParams(task="embed", dtype="float32")


def embedding_model(max_model_len: int = 20, **facts: Any) -> ServedModel:
    """Return a model that pools, with these facts beside the usual ones."""
    known = {"task": "embed", "truncation_side": "right", "width": 2, "score": "bi-encoder", **facts}
    return replace(served_model(max_model_len), tasks=("embed", "token_embed"), pooling=pb.PoolingModel(**known))


def pooling_request(*inputs: Input, **options: Any) -> PoolingRequest:
    """Return a request for embeddings."""
    return PoolingRequest("r", inputs, PARAMS, **options)


def pooled_result(values: Sequence[float], shape: Sequence[int] | None = None) -> PooledResult:
    """Return a result as it is kept."""
    return PooledResult(shape or [len(values)], struct.pack(f"<{len(values)}f", *values), 1)


def pooled_message(values: Sequence[float]) -> pb.Pooled:
    """Return a result as a worker sends it."""
    result = pooled_result(values)
    return pb.Pooled(shape=result.shape, data=result.data, cached_tokens=result.cached_tokens)
