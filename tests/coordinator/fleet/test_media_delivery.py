"""Tests of putting media to a worker that does not answer; those with real workers are in behaviour."""

import asyncio
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from tests.workers import Listener, until
from tokenwire.coordinator.fleet.media_delivery import MediaDelivery
from tokenwire.coordinator.fleet.slots import SlotTable
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.coordinator.media.content import MediaContent, MediaPrompt
from tokenwire.errors import ProtocolError, TokenwireError, Unavailable
from tokenwire.v1 import inference_pb2 as pb

ITEM = MediaContent(b"x")


class SilentWorker:
    """A worker whose calls end when their timeouts are let pass, and never without one."""

    def __init__(self) -> None:
        self.time_passes = asyncio.Event()
        self.media = SimpleNamespace(Put=self.call, Expand=self.call)

    async def call(self, sent: Any, timeout: float | None = None) -> None:
        """Do not answer."""
        await self.time_passes.wait()
        if timeout is None:
            await asyncio.Event().wait()
        raise grpc.aio.AioRpcError(grpc.StatusCode.DEADLINE_EXCEEDED, grpc.aio.Metadata(), grpc.aio.Metadata())


async def test_a_worker_that_takes_no_media_gets_no_request_and_keeps_no_picture() -> None:
    """Its slots end with an error after which another worker is tried, and nobody refers to the picture any more."""
    slots, worker = SlotTable(), SilentWorker()
    ended: list[TokenwireError] = []
    sent: list[pb.SessionRequest] = []
    violations: list[ProtocolError] = []
    delivery = MediaDelivery(slots, sent.append, lambda slots, error: ended.append(error), violations.append)
    delivery.begin(worker)  # type: ignore[arg-type]
    media = MediaPrompt([ITEM], [1], 1, [(0, 1)])
    delivery.submit(Submission("request", [1], media=media), [slots.take(Listener())])
    await until(lambda: ITEM.digest in delivery._putting)
    assert not ended

    worker.time_passes.set()
    await until(lambda: bool(ended))
    assert isinstance(ended[0], Unavailable)
    assert not delivery._putting
    assert not sent + violations
    with pytest.raises(Unavailable, match="within 60 s"):
        await delivery.expand([1], [], None, 10)
