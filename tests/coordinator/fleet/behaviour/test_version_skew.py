"""Workers with an older or newer minor version of the protocol are served."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from google.protobuf.message import Message

from tests.coordinator.fleet.sessions import ready_session
from tests.workers import (
    IDENTITY,
    Listener,
    Script,
    SessionContext,
    accept,
    scripted_worker,
    send,
    submission,
    unix_address,
    until,
)
from tokenwire.coordinator.fleet.desired_state import DesiredStates
from tokenwire.coordinator.fleet.pool import WorkerPool
from tokenwire.protocol.command_batch import commands_of
from tokenwire.protocol.packed_ids import prompt_ids
from tokenwire.protocol.version import MAJOR, MINOR, protocol_version
from tokenwire.v1 import inference_pb2 as pb

OLDER = pb.ProtocolVersion(major=MAJOR, minor=5)
"""The last one without what a worker's tokens depend on."""
OLD_MODEL = pb.Model(names=["scripted"], engine="scripted", max_num_seqs=1)
MODEL = pb.Model(names=["scripted"], engine="scripted", max_num_seqs=1, **IDENTITY)


def with_unknown_field(message: Message) -> None:
    """Add a field that no version has: number 1000, the text "new"."""
    message.MergeFromString(b"\xc2\x3e\x03new")


async def open_transport(address: str, script: Script) -> Listener:
    """Send a request to a scripted worker; return when it has ended."""
    async with scripted_worker(address, script):
        pool = WorkerPool("test", accept)
        pool.update([address])
        try:
            await asyncio.wait_for(pool.wait_ready(), 10)
            listener = Listener()
            send(pool, submission(), [listener], "scripted")
            await asyncio.wait_for(listener.ended.wait(), 10)
            await until(lambda: pool.open_slots == 0)
        finally:
            await pool.stop()
    return listener


async def test_an_older_worker_is_served(tmp_path: Path) -> None:
    """Its welcome and frames have only the fields of the first version: no load, state, weights or instance id."""

    async def older(requests: AsyncIterator[pb.SessionRequest], context: SessionContext) -> None:
        await anext(requests)
        await context.write(pb.SessionResponse(welcome=pb.Welcome(protocol=OLDER, model=OLD_MODEL, heartbeat_ms=500)))
        (slot,) = (await anext(requests)).submit.slots
        await context.write(pb.SessionResponse(frame=pb.StepFrame(slots=[slot], token_ids=[7])))
        finish = pb.Finish(slot=slot, reason=pb.FINISH_REASON_LENGTH)
        await context.write(pb.SessionResponse(frame=pb.StepFrame(slots=[slot], token_ids=[8], finishes=[finish])))
        await asyncio.Event().wait()

    listener = await open_transport(unix_address(tmp_path), older)

    assert listener.token_ids == [7, 8]
    assert listener.error is None


@pytest.mark.parametrize("minor", [8, MINOR])
async def test_prompts_are_packed_for_workers_that_take_it(tmp_path: Path, minor: int) -> None:
    """Older ones would see no prompt."""
    got: list[pb.Submit] = []

    async def worker(requests: AsyncIterator[pb.SessionRequest], context: SessionContext) -> None:
        await anext(requests)
        version = pb.ProtocolVersion(major=MAJOR, minor=minor)
        await context.write(pb.SessionResponse(welcome=pb.Welcome(protocol=version, model=MODEL, heartbeat_ms=500)))
        got.append((await anext(requests)).submit)
        finish = pb.Finish(slot=got[0].slots[0], reason=pb.FINISH_REASON_LENGTH)
        await context.write(pb.SessionResponse(frame=pb.StepFrame(finishes=[finish])))
        await asyncio.Event().wait()

    await open_transport(unix_address(tmp_path), worker)

    (submit,) = got
    assert [*prompt_ids(submit)]
    assert bool(submit.prompt_token_ids) == (minor == 8)


@pytest.mark.parametrize(("minor", "messages"), [(8, 3), (MINOR, 1)])
async def test_requests_are_joined_for_workers_that_take_it(tmp_path: Path, minor: int, messages: int) -> None:
    """Those that come at once; older ones would see none of them."""
    got: list[pb.SessionRequest] = []

    async def worker(requests: AsyncIterator[pb.SessionRequest], context: SessionContext) -> None:
        await anext(requests)
        version = pb.ProtocolVersion(major=MAJOR, minor=minor)
        await context.write(pb.SessionResponse(welcome=pb.Welcome(protocol=version, model=MODEL, heartbeat_ms=500)))
        async for request in requests:
            got.append(request)

    address = unix_address(tmp_path)
    async with scripted_worker(address, worker), ready_session(address) as session:
        for _ in range(3):
            session.submit(submission(), [Listener()])
        await until(lambda: sum(len(commands_of(each)) for each in got) == 3)

    assert len(got) == messages


async def test_a_newer_worker_is_served(tmp_path: Path) -> None:
    """Unknown fields and events are ignored, and unknown reasons mapped to the closest known one."""

    async def newer(requests: AsyncIterator[pb.SessionRequest], context: SessionContext) -> None:
        await anext(requests)
        version = pb.ProtocolVersion(major=MAJOR, minor=MINOR + 1)
        first = pb.SessionResponse(welcome=pb.Welcome(protocol=version, model=MODEL, instance_id="i", heartbeat_ms=500))
        with_unknown_field(first.welcome)
        with_unknown_field(first.welcome.model)
        await context.write(first)
        unknown = pb.SessionResponse()
        with_unknown_field(unknown)
        await context.write(unknown)
        (slot,) = (await anext(requests)).submit.slots
        frame = pb.SessionResponse(frame=pb.StepFrame(slots=[slot], token_ids=[7]))
        with_unknown_field(frame.frame)
        await context.write(frame)
        await context.write(unknown)
        finish = pb.Finish(slot=slot)
        finish.MergeFromString(b"\x10\x63")  # the reason 99
        await context.write(pb.SessionResponse(frame=pb.StepFrame(slots=[slot], token_ids=[8], finishes=[finish])))
        await asyncio.Event().wait()

    listener = await open_transport(unix_address(tmp_path), newer)

    assert listener.token_ids == [7, 8]
    assert listener.finish is not None
    assert listener.finish.reason == 99


async def test_a_newer_worker_may_refuse_for_new_reasons(tmp_path: Path) -> None:
    """A refusal with an unknown code ends the request with its message."""

    async def newer(requests: AsyncIterator[pb.SessionRequest], context: SessionContext) -> None:
        await anext(requests)
        version = pb.ProtocolVersion(major=MAJOR, minor=MINOR + 1)
        await context.write(pb.SessionResponse(welcome=pb.Welcome(protocol=version, model=MODEL, heartbeat_ms=500)))
        refusal = pb.Refusal(slots=(await anext(requests)).submit.slots, message="for a new reason")
        refusal.MergeFromString(b"\x10\x63")
        await context.write(pb.SessionResponse(refusal=refusal))
        await asyncio.Event().wait()

    listener = await open_transport(unix_address(tmp_path), newer)

    assert listener.error is not None
    assert listener.error.message == "for a new reason"


@pytest.mark.parametrize("field", IDENTITY)
async def test_a_worker_that_leaves_out_what_it_is_gets_nothing(tmp_path: Path, field: str) -> None:
    """It would be taken for any other one, and its version has the field; the reason says so."""

    async def nameless(requests: AsyncIterator[pb.SessionRequest], context: SessionContext) -> None:
        await anext(requests)
        welcome = pb.Welcome(protocol=protocol_version(), model=MODEL)
        welcome.model.ClearField(field)
        await context.write(pb.SessionResponse(welcome=welcome))
        await asyncio.Event().wait()

    address = unix_address(tmp_path)
    async with scripted_worker(address, nameless):
        pool = WorkerPool("test", accept)
        pool.update([address])
        try:
            missing = field.removesuffix("_digest")
            await until(lambda: f"does not announce its {missing}," in pool.sessions[0].last_error)
            assert not pool.is_ready()
        finally:
            await pool.stop()


async def test_a_worker_without_a_control_call_is_out_of_sync(tmp_path: Path) -> None:
    """An older worker that cannot adopt a state gets no requests, with the reason."""

    async def older(requests: AsyncIterator[pb.SessionRequest], context: SessionContext) -> None:
        await anext(requests)
        await context.write(pb.SessionResponse(welcome=pb.Welcome(protocol=OLDER, model=OLD_MODEL, heartbeat_ms=500)))
        await asyncio.Event().wait()

    address = unix_address(tmp_path)
    desired = DesiredStates()
    desired.observe("scripted", pb.ServingState(epoch=1 << 16, weights_epoch=1 << 16, weight_version="v2"))
    async with scripted_worker(address, older):
        pool = WorkerPool("test", accept, desired)
        pool.update([address])
        try:
            await until(
                lambda: bool(pool.sessions[0].model) and "Method not found" in pool.out_of_sync(pool.sessions[0])
            )
            assert not pool.is_ready()
        finally:
            await pool.stop()
