"""The transport to a tokenwire worker, over a real socket."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest

from tests.coordinator.fleet.sessions import begin_to_read
from tests.workers import SessionContext, running_worker, scripted_worker, welcome
from tokenwire.coordinator.fleet.transport.base import CommandQueue
from tokenwire.coordinator.fleet.transport.grpc import CommandBatches, GrpcTransport, is_too_large
from tokenwire.errors import ProtocolError, TokenwireError, Unavailable
from tokenwire.peer_auth.client import ChannelFactory
from tokenwire.peer_auth.message_parts import MOST_PARTS
from tokenwire.protocol.command_batch import commands_of
from tokenwire.protocol.tokenizer_digest import tokenizer_digest
from tokenwire.v1 import inference_pb2 as pb


def transport_to(address: str) -> GrpcTransport:
    """Open a transport without commands."""
    return GrpcTransport(ChannelFactory(), address, CommandQueue())


async def test_a_worker_that_is_not_there_is_not_reachable(address: str) -> None:
    """The message is short: details of gRPC list every address."""
    transport = transport_to(address)
    with pytest.raises(Unavailable) as failed:
        await transport.read()
    await transport.close()
    assert failed.value.message == "not reachable"


async def test_a_worker_that_goes_away_is_lost(address: str) -> None:
    """After its first event; one that ends the stream itself is not."""

    async def greet(requests: AsyncIterator[pb.SessionRequest], context: SessionContext) -> None:
        await context.write(welcome())
        await context.abort(grpc.StatusCode.UNAVAILABLE, "Socket is gone")

    async def leave(requests: AsyncIterator[pb.SessionRequest], context: SessionContext) -> None:
        await context.write(welcome())

    async with scripted_worker(address, greet):
        transport = transport_to(address)
        assert await transport.read() == welcome()
        with pytest.raises(Unavailable) as failed:
            await transport.read()
        await transport.close()
    assert failed.value.message == "connection lost"

    async with scripted_worker(address, leave):
        transport = transport_to(address)
        assert await transport.read() == welcome()
        assert await transport.read() is None
        await transport.close()


async def test_a_reader_that_is_cancelled_when_its_stream_fails_is_cancelled(address: str) -> None:
    """gRPC reports only the failure then: the task would go on, and who waits for its end would wait forever."""
    transport = transport_to(address)
    reading = asyncio.create_task(transport.read())
    transport._call.add_done_callback(lambda call: reading.cancel())
    with pytest.raises(asyncio.CancelledError):
        await reading
    await transport.close()


async def test_an_error_of_the_worker_keeps_its_message(address: str) -> None:
    """With the error that its status stands for."""

    async def refuse(requests: AsyncIterator[pb.SessionRequest], context: SessionContext) -> None:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "upgrade this side")

    async with scripted_worker(address, refuse):
        transport = transport_to(address)
        with pytest.raises(TokenwireError, match="upgrade this side"):
            await transport.read()
        await transport.close()


async def test_the_tokenizer_is_fetched_by_a_control_call(address: str) -> None:
    """Whatever the session does."""
    async with running_worker(address) as worker:
        transport = transport_to(address)
        files = await transport.fetch_tokenizer()
        await transport.close()
        assert tokenizer_digest(files) == worker.welcome().model.tokenizer_digest


async def test_an_event_beyond_the_limit_violates_the_protocol(address: str) -> None:
    """It is not even parsed; the message names the option that raises the limit."""

    async def flood(requests: AsyncIterator[pb.SessionRequest], context: SessionContext) -> None:
        await context.write(welcome())
        await context.write(pb.SessionResponse(frame=pb.StepFrame(token_ids=[65] * 2**20)))

    async with scripted_worker(address, flood):
        transport = GrpcTransport(ChannelFactory(most_event_bytes=2**20), address, CommandQueue())
        assert await transport.read() == welcome()
        with pytest.raises(ProtocolError, match=r"more than 1 MiB, .* --max-request-mb"):
            await transport.read()
        await transport.close()


async def test_an_event_of_very_many_parts_violates_the_protocol(address: str) -> None:
    """They would take a hundred times its size."""

    async def flood(requests: AsyncIterator[pb.SessionRequest], context: SessionContext) -> None:
        await context.write(pb.SessionResponse(frame=pb.StepFrame(finishes=[pb.Finish()] * (MOST_PARTS + 1))))

    async with scripted_worker(address, flood):
        transport = transport_to(address)
        with pytest.raises(ProtocolError, match="too many parts"):
            await transport.read()
        await transport.close()


async def test_a_tokenizer_beyond_the_limit_is_not_read(address: str) -> None:
    """The message has its size, the limit and the option."""
    async with running_worker(address):
        transport = GrpcTransport(ChannelFactory(most_tokenizer_bytes=2**10), address, CommandQueue())
        with pytest.raises(ProtocolError, match=r"have [0-9.]+ MiB, more than the 0.000976562 of --max-tokenizer-mb"):
            await transport.fetch_tokenizer()
        await transport.close()


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        ("CLIENT: Received message larger than max (5 vs. 4)", True),
        ("Stream removed (received metadata size exceeds soft limit (11000 vs. 8192))", True),
        ("The worker's queue is full.", False),
    ],
)
def test_what_is_too_large_is_told_from_a_worker_that_is_full(details: str, expected: bool) -> None:
    """gRPC has one code for both, and the client is to try again only after one of them."""
    none = grpc.aio.Metadata()
    assert is_too_large(grpc.aio.AioRpcError(grpc.StatusCode.RESOURCE_EXHAUSTED, none, none, details)) is expected


def a_submit(slot: int, prompt_bytes: int = 0) -> pb.SessionRequest:
    """Return a command with a prompt of this size."""
    return pb.SessionRequest(submit=pb.Submit(slots=[slot], packed_prompt_token_ids=bytes(prompt_bytes)))


def slots_of(message: pb.SessionRequest) -> list[int]:
    """Return the slots of a message's commands."""
    return [slot for each in commands_of(message) for slot in each.submit.slots]


async def messages_slots(commands: list[pb.SessionRequest], joins: bool = True) -> list[list[int]]:
    """Return the slots of each message that commands become, if all are ready at once."""
    queue = CommandQueue()
    batches = CommandBatches(queue)
    batches.joins = joins
    for each in commands:
        queue.put(each)
    queue.close()
    return [slots_of(message) async for message in batches]


async def test_commands_that_are_ready_are_one_message() -> None:
    """In their order; the end of the queue comes after it."""
    assert await messages_slots([a_submit(1), a_submit(2), a_submit(3)]) == [[1, 2, 3]]


async def test_an_older_worker_gets_each_by_itself() -> None:
    """It does not know batches."""
    assert await messages_slots([a_submit(1), a_submit(2)], joins=False) == [[1], [2]]


async def test_messages_stay_small() -> None:
    """What is long gains nothing, and delays what comes after it."""
    assert [len(each) for each in await messages_slots([a_submit(slot) for slot in range(100)])] == [64, 36]
    long = [a_submit(1), a_submit(2, 300_000), a_submit(3)]
    assert await messages_slots(long) == [[1, 2], [3]]


async def test_a_command_waits_for_no_other() -> None:
    """It is sent at once where nothing else is ready, and a reader that was cancelled loses none."""
    queue = CommandQueue()
    batches = CommandBatches(queue)
    batches.joins = True
    await begin_to_read(batches)
    queue.put(a_submit(1))

    assert slots_of(await anext(batches)) == [1]
