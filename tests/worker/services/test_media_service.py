"""Tests of the service for media, over a real socket."""

import hashlib
import json
from types import SimpleNamespace

import grpc
import pytest

from tests.worker.media.test_received import item_chunks
from tests.workers import running_worker
from tokenwire.peer_auth.grpc_options import FEATURES_PART_BYTES
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.v1 import inference_pb2_grpc
from tokenwire.worker.services.media_service import MediaService
from tokenwire.worker.simulated_engine.media import PLACEHOLDER

ITEM = pb.MediaItem(modality="image", digest=hashlib.sha256(b"picture").digest())
REQUEST = pb.ExpandRequest(token_ids=PLACEHOLDER.encode(), media=[ITEM])


async def test_what_is_put_can_be_expanded(address: str) -> None:
    """Before it is put it is named as missing, and not an error."""
    async with running_worker(address, image_tokens=3), grpc.aio.insecure_channel(address) as channel:
        stub = inference_pb2_grpc.MediaStub(channel)
        assert (await stub.Expand(REQUEST)).missing == [ITEM.digest]
        await stub.Put(item_chunks(b"pic", b"ture"))
        response = await stub.Expand(REQUEST)
        assert len(response.token_ids) == 3
        assert response.spans == [pb.MediaSpan(offset=0, length=3)]


async def test_of_a_prompt_that_is_too_long_there_is_only_the_length(address: str) -> None:
    """As many ids as asked for are returned."""
    async with running_worker(address, image_tokens=3), grpc.aio.insecure_channel(address) as channel:
        stub = inference_pb2_grpc.MediaStub(channel)
        await stub.Put(item_chunks(b"picture"))
        asked = [pb.ExpandRequest(token_ids=REQUEST.token_ids, media=[ITEM], max_token_ids=most) for most in (2, 3)]
        too_long, fits = [await stub.Expand(each) for each in asked]
        assert too_long == pb.ExpandResponse(length=3)
        assert len(fits.token_ids) == 3


async def test_features_follow_an_expansion_in_parts(address: str) -> None:
    """An item that is missing is named instead."""
    prompt = pb.ExpandRequest(token_ids=REQUEST.token_ids, media=[ITEM], mm_payload="none")
    request = pb.RenderRequest(prompt=prompt)
    async with running_worker(address, image_tokens=3), grpc.aio.insecure_channel(address) as channel:
        stub = inference_pb2_grpc.MediaStub(channel)
        assert [each.part.missing async for each in stub.Render(request)] == [[ITEM.digest]]
        await stub.Put(item_chunks(b"picture"))
        first, *parts = [each.part async for each in stub.Render(request)]
        assert first == await stub.Expand(REQUEST)
        features = json.loads(b"".join(each.features_json for each in parts))
        assert features["mm_placeholders"] == {"image": [{"offset": 0, "length": 3}]}


async def test_large_features_come_in_parts_of_a_mebibyte() -> None:
    """The last one is what is left of them."""
    features = b"x" * (2 * FEATURES_PART_BYTES + 1)

    async def expand(request: pb.ExpandRequest) -> pb.ExpandResponse:
        return pb.ExpandResponse(token_ids=[1], features_json=features)

    service = MediaService(SimpleNamespace(expand=expand))
    first, *parts = [each.part async for each in service.Render(pb.RenderRequest(), None)]  # type: ignore[arg-type]
    assert first == pb.ExpandResponse(token_ids=[1])
    assert [len(each.features_json) for each in parts] == [FEATURES_PART_BYTES, FEATURES_PART_BYTES, 1]


async def test_wrong_bytes_are_refused_with_a_status(address: str) -> None:
    """The status says that the caller is to blame."""
    async with running_worker(address, image_tokens=3), grpc.aio.insecure_channel(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await inference_pb2_grpc.MediaStub(channel).Put(item_chunks(b"picture", name=bytes(32)))
        assert failed.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_model_that_takes_text_only_says_so(address: str) -> None:
    """No call is served for it."""
    async with running_worker(address), grpc.aio.insecure_channel(address) as channel:
        stub = inference_pb2_grpc.MediaStub(channel)
        for call in (
            stub.Put(item_chunks(b"picture")),
            stub.Expand(REQUEST),
            anext(aiter(stub.Render(pb.RenderRequest()))),
        ):
            with pytest.raises(grpc.aio.AioRpcError, match="takes text only") as failed:
                await call
            assert failed.value.code() is grpc.StatusCode.UNIMPLEMENTED
