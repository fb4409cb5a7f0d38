"""A hostile worker: a gRPC server that looks like an honest one and says what it likes.

A subclass overrides what it lies about: its welcome, what it announces, or what it answers.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from tokenwire.peer_auth.grpc_options import SERVER, open_channel
from tokenwire.protocol.command_batch import commands_of
from tokenwire.v1 import control_pb2, control_pb2_grpc, inference_pb2_grpc
from tokenwire.v1 import inference_pb2 as pb

SessionContext = grpc.aio.ServicerContext[pb.SessionRequest, pb.SessionResponse]
HEARTBEAT_S = 0.2
HANG_UP = pb.SessionResponse()
"""An answer that closes the session."""


class HostileWorker(inference_pb2_grpc.InferenceServicer):
    """Copies the welcome and the tokenizer of an honest worker, sends heartbeats, and never a token."""

    def __init__(self, info: control_pb2.GetServerInfoResponse, tokenizer: control_pb2.GetTokenizerResponse) -> None:
        self.honest = info.welcome
        self.tokenizer = tokenizer
        self.operations: list[Any] = []
        """Requests of control calls that it was to carry out."""
        self.metrics_text = ""
        self.connected = asyncio.Event()
        """Set by the first session."""
        self.submits = 0
        """How many requests it got."""
        self.expansions = 0
        """How many prompts with media it was to expand."""

    def welcome(self) -> pb.Welcome:
        """Return its first event."""
        welcome = pb.Welcome()
        welcome.CopyFrom(self.honest)
        welcome.instance_id = "hostile"
        welcome.heartbeat_ms = int(1000 * HEARTBEAT_S)
        return welcome

    async def announcements(self) -> AsyncIterator[pb.SessionResponse]:
        """Yield what it says after its welcome, forever."""
        while True:
            yield pb.SessionResponse(heartbeat=pb.Heartbeat())
            await asyncio.sleep(HEARTBEAT_S)

    async def operate(self, request: Any) -> pb.ServingState:
        """Return the state with which it answers an operation. Raises ValueError to refuse it."""
        self.operations.append(request)
        raise ValueError("I will not")

    def answer(self, submit: pb.Submit) -> Iterator[pb.SessionResponse]:
        """Return what it answers to a request."""
        return iter(())

    async def put(self, requests: AsyncIterator[pb.PutRequest]) -> pb.PutResponse:
        """Return what it answers once a picture is put."""
        async for _ in requests:
            pass
        return pb.PutResponse()

    async def render(self, request: pb.RenderRequest) -> AsyncIterator[pb.RenderResponse]:
        """Yield what it makes of a prompt with pictures for a rendered request."""
        yield pb.RenderResponse(part=await self.expand(request.prompt))

    async def expand(self, request: pb.ExpandRequest) -> pb.ExpandResponse:
        """Return what it makes of a prompt with pictures. Raises ValueError to refuse it."""
        return pb.ExpandResponse()

    async def Session(self, requests: AsyncIterator[pb.SessionRequest], context: SessionContext) -> None:
        """Serve a session: its announcements, and meanwhile its answers."""
        await anext(requests)
        self.connected.set()
        await context.write(pb.SessionResponse(welcome=self.welcome()))
        announcing = asyncio.create_task(self._announce(context))
        try:
            async for request in requests:
                for submit in [each.submit for each in commands_of(request) if each.HasField("submit")]:
                    self.submits += 1
                    for event in self.answer(submit):
                        if event is HANG_UP:
                            return
                        await context.write(event)
        finally:
            announcing.cancel()

    async def _announce(self, context: SessionContext) -> None:
        async for event in self.announcements():
            await context.write(event)


class HostileControl(control_pb2_grpc.ControlServicer):
    """Its control calls."""

    def __init__(self, worker: HostileWorker) -> None:
        self._worker = worker

    async def GetTokenizer(self, request: Any, context: Any) -> control_pb2.GetTokenizerResponse:
        return self._worker.tokenizer

    async def GetMetrics(self, request: Any, context: Any) -> control_pb2.GetMetricsResponse:
        return control_pb2.GetMetricsResponse(text=self._worker.metrics_text)


class HostileMedia(inference_pb2_grpc.MediaServicer):
    """Its calls for media."""

    def __init__(self, worker: HostileWorker) -> None:
        self._worker = worker

    async def Put(self, requests: AsyncIterator[pb.PutRequest], context: Any) -> pb.PutResponse:
        return await self._worker.put(requests)

    async def Render(self, request: pb.RenderRequest, context: Any) -> AsyncIterator[pb.RenderResponse]:
        async for part in self._worker.render(request):
            yield part

    async def Expand(self, request: pb.ExpandRequest, context: Any) -> pb.ExpandResponse:
        self._worker.expansions += 1
        try:
            return await self._worker.expand(request)
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            raise


def _operation(name: str, response: type[Any]) -> Any:
    async def call(self: HostileControl, request: Any, context: Any) -> Any:
        try:
            return response(serving=await self._worker.operate(request))
        except ValueError as error:
            await context.abort(grpc.StatusCode.ABORTED, str(error))

    call.__name__ = name
    return call


for _method in control_pb2.DESCRIPTOR.services_by_name["Control"].methods:
    if "serving" in _method.output_type.fields_by_name:
        setattr(HostileControl, _method.name, _operation(_method.name, getattr(control_pb2, _method.output_type.name)))


@asynccontextmanager
async def running_hostile_worker(worker: HostileWorker, address: str) -> AsyncIterator[None]:
    """Serve a hostile worker on an address."""
    server = grpc.aio.server(options=SERVER)
    inference_pb2_grpc.add_InferenceServicer_to_server(worker, server)
    inference_pb2_grpc.add_MediaServicer_to_server(HostileMedia(worker), server)
    control_pb2_grpc.add_ControlServicer_to_server(HostileControl(worker), server)
    server.add_insecure_port(address)
    await server.start()
    try:
        yield
    finally:
        await server.stop(grace=None)


async def server_info(address: str) -> control_pb2.GetServerInfoResponse:
    """Return what a worker says of itself."""
    async with open_channel(address) as channel:
        stub = control_pb2_grpc.ControlStub(channel)
        info: control_pb2.GetServerInfoResponse = await stub.GetServerInfo(
            control_pb2.GetServerInfoRequest(), wait_for_ready=True
        )
        return info


async def tokenizer_of(address: str) -> control_pb2.GetTokenizerResponse:
    """Return a worker's tokenizer."""
    async with open_channel(address) as channel:
        stub = control_pb2_grpc.ControlStub(channel)
        tokenizer: control_pb2.GetTokenizerResponse = await stub.GetTokenizer(
            control_pb2.GetTokenizerRequest(), wait_for_ready=True
        )
        return tokenizer
