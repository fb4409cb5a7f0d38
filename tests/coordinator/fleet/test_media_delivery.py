"""Tests of putting media to a worker that does not answer; those with real workers are in behaviour."""

import asyncio
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from tests.clock import Clock
from tests.workers import Listener, until
from tokenwire.coordinator.fleet.media_delivery import MediaDelivery
from tokenwire.coordinator.fleet.slots import SlotTable
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.coordinator.media.content import MediaContent, MediaPrompt
from tokenwire.errors import InvalidRequest, ProtocolError, TokenwireError, Unavailable
from tokenwire.v1 import inference_pb2 as pb

ITEM = MediaContent(b"x")


class SilentWorker:
    """A worker whose calls end when their timeouts are let pass, and never without one."""

    def __init__(self) -> None:
        self.time_passes = asyncio.Event()
        self.media = SimpleNamespace(Put=self.call, Expand=self.call)
        self.calls = 0

    async def call(self, sent: Any, timeout: float | None = None) -> None:
        """Do not answer."""
        self.calls += 1
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


class AnsweringWorker(SilentWorker):
    """A worker that answers when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[pb.ExpandRequest] = []

    async def call(self, sent: Any, timeout: float | None = None) -> pb.ExpandResponse:  # type: ignore[override]
        """Answer."""
        self.sent.append(sent)
        self.calls += 1
        await self.time_passes.wait()
        return pb.ExpandResponse(token_ids=[1])


def watched_delivery(clock: Clock) -> MediaDelivery:
    """Return a delivery of which nothing is sent."""
    return MediaDelivery(SlotTable(), lambda command: None, lambda *_: None, lambda error: None, clock)


@pytest.mark.parametrize("answers", [False, True])
async def test_a_worker_is_silent_until_it_answers_somebody(answers: bool) -> None:
    """After some seconds with calls and without answers; also once these calls have timed out."""
    worker, clock = AnsweringWorker() if answers else SilentWorker(), Clock(0.0)
    delivery = watched_delivery(clock)
    delivery.begin(worker)  # type: ignore[arg-type]
    assert not delivery.is_silent
    asking = [asyncio.create_task(delivery.expand([1], [], None, 10)) for _ in range(2)]
    await until(lambda: worker.calls == 2)
    clock.now = 4.0
    assert not delivery.is_silent
    clock.now = 6.0
    assert delivery.is_silent
    worker.time_passes.set()
    await asyncio.wait(asking)
    assert delivery.is_silent is not answers
    clock.now = 50.0
    assert delivery.is_silent is not answers


async def test_an_expansion_names_its_tenant() -> None:
    """Its worker takes those that wait in turns of tenants."""
    worker, delivery = AnsweringWorker(), watched_delivery(Clock(0.0))
    delivery.begin(worker)  # type: ignore[arg-type]
    worker.time_passes.set()
    await delivery.expand([1], [], None, 10, tenant="search")
    assert [each.tenant for each in worker.sent] == ["search"]


async def test_requests_that_are_cancelled_do_not_make_a_worker_silent() -> None:
    """Clients leave at any time."""
    worker, clock = SilentWorker(), Clock(0.0)
    delivery = watched_delivery(clock)
    delivery.begin(worker)  # type: ignore[arg-type]
    asking = asyncio.create_task(delivery.expand([1], [], None, 10))
    await until(lambda: worker.calls == 1)
    asking.cancel()
    await asyncio.wait([asking])
    clock.now = 60.0
    assert not delivery.is_silent


async def test_a_refusal_is_an_answer() -> None:
    """Also one of a worker whose calls are no gRPC."""
    worker, clock = RefusingWorker(), Clock(0.0)
    delivery = watched_delivery(clock)
    delivery.begin(worker)  # type: ignore[arg-type]
    waiting, refused = [asyncio.create_task(delivery.expand([1], [], None, 10)) for _ in range(2)]
    await until(lambda: worker.calls == 2)
    clock.now = 6.0
    worker.refuses.set()
    await asyncio.wait([refused])
    assert not delivery.is_silent
    waiting.cancel()


class RefusingWorker(SilentWorker):
    """A worker that refuses its second call when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.refuses = asyncio.Event()

    async def call(self, sent: Any, timeout: float | None = None) -> None:
        """Refuse."""
        self.calls += 1
        if self.calls == 1:
            await asyncio.Event().wait()
        await self.refuses.wait()
        raise InvalidRequest("no picture")
