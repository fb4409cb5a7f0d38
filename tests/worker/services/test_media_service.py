"""Tests of the service for media, over a real socket."""

import hashlib

import grpc
import pytest

from tests.worker.media.test_received import item_chunks
from tests.workers import running_worker
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.v1 import inference_pb2_grpc
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


async def test_wrong_bytes_are_refused_with_a_status(address: str) -> None:
    """The status says that the caller is to blame."""
    async with running_worker(address, image_tokens=3), grpc.aio.insecure_channel(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await inference_pb2_grpc.MediaStub(channel).Put(item_chunks(b"picture", name=bytes(32)))
        assert failed.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_model_that_takes_text_only_says_so(address: str) -> None:
    """Neither call is served for it."""
    async with running_worker(address), grpc.aio.insecure_channel(address) as channel:
        stub = inference_pb2_grpc.MediaStub(channel)
        for call in (stub.Put(item_chunks(b"picture")), stub.Expand(REQUEST)):
            with pytest.raises(grpc.aio.AioRpcError, match="takes text only") as failed:
                await call
            assert failed.value.code() is grpc.StatusCode.UNIMPLEMENTED
