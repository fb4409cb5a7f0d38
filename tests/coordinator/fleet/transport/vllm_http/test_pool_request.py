"""Inputs to pool become requests of a plain vLLM server, and its responses their results."""

from typing import Any

import pytest

from tokenwire.coordinator.fleet.transport.vllm_http.pool_request import pool_body_of, pool_path, results_of
from tokenwire.errors import EngineFailed, InvalidRequest
from tokenwire.v1 import inference_pb2 as pb


def pool(task: str = "embed", dtype: str = "float16", **more: Any) -> pb.Pool:
    """Return a command with three inputs."""
    params = pb.PoolingParams(task=task, dtype=dtype)
    return pb.Pool(request_id="r", slots=[4, 5, 6], lengths=[2, 1, 3], token_ids=range(10, 16), params=params, **more)


def test_inputs_are_sent_as_ids_and_their_numbers_as_bytes() -> None:
    """In the type that the client gets."""
    body = pool_body_of(pool(priority=3, cache_salt="s"), "r-1", "m")

    assert body == {
        "request_id": "r-1",
        "model": "m",
        "input": [[10, 11], [12], [13, 14, 15]],
        "encoding_format": "bytes_only",
        "embed_dtype": "float16",
        "endianness": "little",
        "priority": 3,
        "cache_salt": "s",
    }


def test_only_embeddings_have_a_route_of_their_own() -> None:
    """All other tasks are named; `dimensions` and `use_activation` are sent if they are given."""
    embedded, classified = pool(), pool("classify")
    embedded.params.dimensions, classified.params.use_activation = 8, False

    assert (pool_path(embedded), pool_path(classified)) == ("/v1/embeddings", "/pooling")
    first, second = pool_body_of(embedded, "r", "m"), pool_body_of(classified, "r", "m")
    assert first["dimensions"] == 8
    assert (second["task"], second["use_activation"]) == ("classify", False)
    assert first.keys().isdisjoint({"task", "use_activation"})


def test_the_types_of_pairs_cannot_be_sent() -> None:
    """The server would pool them as one text."""
    with pytest.raises(InvalidRequest, match="tokens have types"):
        pool_body_of(pool(second_begins=[1, 1, 1]), "r", "m")


def test_each_input_gets_its_part_of_the_response() -> None:
    """A vector, or one for each of its tokens."""
    content = bytes(range(24))

    vectors = [finish.pooled for finish in results_of(pool(), content)]
    assert [(list(each.shape), each.data) for each in vectors] == [
        ([4], content[:8]),
        ([4], content[8:16]),
        ([4], content[16:]),
    ]
    finishes = list(results_of(pool("token_embed"), content))
    assert [finish.slot for finish in finishes] == [4, 5, 6]
    assert [list(finish.pooled.shape) for finish in finishes] == [[2, 2], [1, 2], [3, 2]]
    assert b"".join(finish.pooled.data for finish in finishes) == content


@pytest.mark.parametrize("content", [b"", bytes(25), bytes(4)])
def test_a_response_of_another_size_has_failed(content: bytes) -> None:
    """Nobody could tell whose numbers these are."""
    with pytest.raises(EngineFailed, match=f"{len(content)} bytes for 3 results"):
        list(results_of(pool(), content))
