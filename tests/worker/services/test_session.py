"""One coordinator's session on the worker's side: each slot gets exactly one terminal event, whatever happens.

One file, since all tests are of one class with the same fake engine.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import cast

import grpc
import pytest

from tests.worker.peers import TIMEOUT_S, Peer, PreparingEngine, ScriptedEngine, connected_peer, in_session
from tests.workers import SessionContext, running_worker, submit_message, until
from tokenwire.errors import InvalidRequest, Overloaded
from tokenwire.protocol.version import MAJOR, protocol_version
from tokenwire.v1 import control_pb2 as control
from tokenwire.v1 import control_pb2_grpc
from tokenwire.v1 import inference_pb2 as pb

LONG = 20_000


async def refusal_of(peer: Peer) -> str:
    """Wait until the worker ends the session with FAILED_PRECONDITION; return its details."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await asyncio.wait_for(peer.read_to_end(), TIMEOUT_S)
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    return caught.value.details() or ""


async def test_a_hello_is_answered_with_a_welcome(address: str) -> None:
    """The welcome has the protocol version, the model with its tokenizer's digest, and the instance id."""
    async with running_worker(address) as worker, connected_peer(address) as peer:
        welcome = await peer.hello()

        assert welcome.protocol == protocol_version()
        assert list(welcome.model.names) == ["simulated"]
        assert len(welcome.model.tokenizer_digest) == 64
        assert welcome.instance_id
        assert welcome == worker.welcome()
        assert not welcome.draining


@pytest.mark.parametrize("first", [pb.SessionRequest(submit=submit_message(slots=[0])), pb.SessionRequest(), None])
async def test_a_session_begins_with_a_hello(address: str, first: pb.SessionRequest | None) -> None:
    """Anything else, or nothing, ends the session with a reason and does not reach the engine."""
    engine = ScriptedEngine()
    async with running_worker(address, engine), connected_peer(address) as peer:
        if first is not None:
            await peer.call.write(first)
        await peer.call.done_writing()

        assert "must be a Hello" in await refusal_of(peer)
        assert not engine.submitted


@pytest.mark.parametrize(("major", "older"), [(MAJOR + 1, "this side"), (0, "coordinator peer")])
async def test_another_major_version_is_refused(address: str, major: int, older: str) -> None:
    """The error names the side to upgrade."""
    async with running_worker(address), connected_peer(address) as peer:
        await peer.send(hello=pb.Hello(protocol=pb.ProtocolVersion(major=major), coordinator_id="peer"))

        assert f"upgrade tokenwire on {older}" in await refusal_of(peer)


async def test_another_minor_version_is_accepted(address: str) -> None:
    """Only major versions must be equal."""
    async with running_worker(address), connected_peer(address) as peer:
        await peer.send(hello=pb.Hello(protocol=pb.ProtocolVersion(major=MAJOR, minor=99)))
        event = await asyncio.wait_for(peer.call.read(), TIMEOUT_S)

        assert isinstance(event, pb.SessionResponse)
        assert event.WhichOneof("event") == "welcome"


async def test_commands_of_a_batch_are_executed_in_their_order(address: str) -> None:
    """As if each had come by itself: what is started and then aborted ends, and so does what is not."""
    async with running_worker(address, step_ms=0), in_session(address) as peer:
        commands = [
            pb.SessionRequest(submit=submit_message(100_000, slots=[1])),
            pb.SessionRequest(abort=pb.Abort(slots=[1])),
            pb.SessionRequest(submit=submit_message(3, slots=[2])),
        ]
        await peer.send(batch=pb.CommandBatch(commands=commands))
        await peer.read_until_ended(1, 2)

        assert peer.finishes[1].reason == pb.FINISH_REASON_ABORT
        assert len(peer.tokens[2]) == 3


async def test_each_slot_ends_once(address: str) -> None:
    """Every sequence gets all of its tokens, then one finish, and nothing after it."""
    async with running_worker(address, step_ms=0), in_session(address) as peer:
        await peer.send(submit=submit_message(30, slots=[4, 7]))
        for slot in range(10, 20):
            await peer.send(submit=submit_message(slot, slots=[slot]))

        await peer.read_until_ended(4, 7, *range(10, 20))
        await peer.send(submit=submit_message(1, slots=[99]))
        await peer.read_until_ended(99)

        assert {slot: len(tokens) for slot, tokens in peer.tokens.items()} == {
            4: 30,
            7: 30,
            **{slot: slot for slot in range(10, 20)},
            99: 1,
        }
        assert set(peer.endings.values()) == {1}
        assert {finish.reason for finish in peer.finishes.values()} == {pb.FINISH_REASON_LENGTH}


async def test_a_slot_can_be_reused_after_its_end(address: str) -> None:
    """Whether finished, aborted or refused, the slot then carries the next request."""
    refusable = submit_message(slots=[5])
    refusable.prompt_token_ids[:] = [10**6]
    async with running_worker(address) as worker, in_session(address) as peer:
        for submit in (
            submit_message(3, slots=[5]),
            submit_message(LONG, slots=[5]),
            refusable,
            submit_message(3, slots=[5]),
        ):
            peer.endings.clear()
            await peer.send(submit=submit)
            if submit.sampling_params.max_tokens == LONG:
                await peer.send(abort=pb.Abort(slots=[5]))
            await peer.read_until_ended(5)

        assert worker.server_info().open_slots == 0
        assert len(peer.refusals) == 1
        assert peer.finishes[5].reason == pb.FINISH_REASON_LENGTH


@pytest.mark.parametrize("slots", [[1], [2, 1], [2, 2], []])
async def test_a_submit_with_invalid_slots_ends_the_session(address: str, slots: list[int]) -> None:
    """With a slot in use, twice the same or none, a refusal would end another request's slot: the session ends."""
    engine = ScriptedEngine()
    async with running_worker(address, engine) as worker, in_session(address) as peer:
        await peer.send(submit=submit_message(slots=[1], request_id="first"))
        await peer.send(submit=submit_message(slots=slots, request_id="second"))

        assert "second names no slots or slots in use" in await refusal_of(peer)
        await until(lambda: not worker.server_info().sessions)
        assert set(engine.submitted) == {1}
        assert engine.aborted == [engine.submitted[1]]


async def test_an_empty_prompt_is_refused(address: str) -> None:
    """A request that the engine refuses ends all of its slots with one refusal and the engine's own message."""
    async with running_worker(address) as worker, in_session(address) as peer:
        empty = pb.Submit(request_id="empty", slots=[3, 4])
        await peer.send(submit=empty)
        await peer.read()

        (refusal,) = peer.refusals
        assert list(refusal.slots) == [3, 4]
        assert refusal.code == pb.REFUSAL_CODE_INVALID
        assert "cannot be empty" in refusal.message
        assert refusal.param == "prompt_token_ids"
        assert worker.server_info().open_slots == 0


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (Overloaded("the queue is full"), pb.REFUSAL_CODE_OVERLOADED, "the queue is full"),
        (InvalidRequest("wrong", param="seed"), pb.REFUSAL_CODE_INVALID, "wrong"),
        (ValueError("a bug"), pb.REFUSAL_CODE_UNAVAILABLE, "could not accept the request: a bug"),
    ],
)
async def test_an_error_on_submit_refuses_the_request(
    address: str, error: Exception, code: "pb.RefusalCode", message: str
) -> None:
    """Expected or not, an engine's error on submit ends one request, not the session."""
    engine = ScriptedEngine()
    async with running_worker(address, engine), in_session(address) as peer:
        engine.submit_error = error
        await peer.send(submit=submit_message(slots=[0]))
        await peer.read()
        engine.submit_error = None
        await peer.send(submit=submit_message(slots=[0]))
        await until(lambda: 0 in engine.submitted)

        (refusal,) = peer.refusals
        assert refusal.code == code
        assert message in refusal.message
        assert refusal.HasField("param") == isinstance(error, InvalidRequest)


async def test_an_abort_ends_only_its_slots(address: str) -> None:
    """Aborted slots get one ABORT finish, even if aborted twice; others continue; unknown ones are ignored."""
    async with running_worker(address) as worker, in_session(address) as peer:
        await peer.send(submit=submit_message(LONG, slots=[1, 2]))
        await peer.send(submit=submit_message(100, slots=[3]))
        await peer.send(abort=pb.Abort(slots=[1, 77]))
        await peer.send(abort=pb.Abort(slots=[1, 2]))

        await peer.read_until_ended(1, 2, 3)

        assert peer.finishes[1].reason == peer.finishes[2].reason == pb.FINISH_REASON_ABORT
        assert peer.finishes[3].reason == pb.FINISH_REASON_LENGTH
        assert len(peer.tokens[3]) == 100
        assert set(peer.endings.values()) == {1}
        assert worker.server_info().open_slots == 0


@pytest.mark.parametrize("gently", [True, False])
async def test_a_lost_session_aborts_its_slots(address: str, gently: bool) -> None:
    """When the stream ends, its open slots are aborted in the engine, and no others."""
    engine = ScriptedEngine()
    async with running_worker(address, engine) as worker, in_session(address) as other:
        await other.send(submit=submit_message(slots=[0]))
        await until(lambda: worker.server_info().open_slots == 1)
        async with in_session(address) as peer:
            await peer.send(submit=submit_message(slots=[1, 2, 3]))
            await until(lambda: worker.server_info().open_slots == 4)
            engine.emit({1: [65]}, ends={1: pb.FINISH_REASON_STOP})
            await peer.read_until_ended(1)

            if gently:
                await peer.call.done_writing()
            else:
                peer.call.cancel()
            await asyncio.wait_for(engine.aborts.wait(), TIMEOUT_S)

        await until(lambda: worker.server_info().sessions == 1)
        assert [sequence.slot for sequence in engine.aborted] == [2, 3]
        assert worker.server_info().open_slots == 1
        engine.emit({0: [66]}, ends={0: pb.FINISH_REASON_STOP})
        await other.read_until_ended(0)


async def test_a_second_hello_is_ignored(address: str, caplog: pytest.LogCaptureFixture) -> None:
    """An unexpected command is logged; the session continues."""
    async with running_worker(address), in_session(address) as peer:
        await peer.send(hello=pb.Hello(protocol=protocol_version()))
        await peer.send(submit=submit_message(3, slots=[0]))

        await peer.read_until_ended(0)

        assert len(peer.tokens[0]) == 3
    assert "unexpected command: hello" in caplog.text


def with_grammar(slots: list[int]) -> pb.Submit:
    """Return a request that an engine prepares before it starts."""
    submit = submit_message(LONG, request_id="grammar", slots=slots)
    submit.sampling_params.structured_outputs.regex = "[a-z]*"
    return submit


async def test_a_submit_that_is_prepared_holds_no_other_command(address: str) -> None:
    """While a grammar is compiled, requests start and end, and are aborted."""
    engine = PreparingEngine()
    async with running_worker(address, engine), in_session(address) as peer:
        await peer.send(submit=with_grammar([1]))
        await peer.send(submit=submit_message(slots=[2, 3]))
        await peer.send(abort=pb.Abort(slots=[3]))
        await asyncio.wait_for(engine.aborts.wait(), TIMEOUT_S)

        assert [sequence.slot for sequence in engine.preparing] == [1]
        assert set(engine.submitted) == {2, 3}
        assert engine.aborted == [engine.submitted[3]]
        engine.emit({2: [65]}, ends={2: pb.FINISH_REASON_STOP})
        await peer.read_until_ended(2)
        engine.prepared.set()
        await until(lambda: 1 in engine.submitted)
        engine.emit({1: [66]}, ends={1: pb.FINISH_REASON_STOP})
        await peer.read_until_ended(1)
        assert peer.tokens == {1: [66], 2: [65]}


async def test_sequences_that_are_prepared_are_reported_as_waiting(address: str) -> None:
    """Steps go on without tokens of them, and their coordinator must not take that for a fault."""
    engine = PreparingEngine()
    async with running_worker(address, engine), in_session(address) as peer:
        await peer.send(submit=with_grammar([1, 4]))
        await peer.send(submit=submit_message(slots=[2]))
        await until(lambda: 2 in engine.submitted)
        engine.emit({2: [65]}, ends={2: pb.FINISH_REASON_STOP})
        await peer.read_until_ended(2)
        assert peer.last_frame.load.waiting == 2

        engine.prepared.set()
        await until(lambda: {1, 4} <= set(engine.submitted))
        engine.emit({1: [66], 4: [66]}, ends={1: pb.FINISH_REASON_STOP, 4: pb.FINISH_REASON_STOP})
        await peer.read_until_ended(1, 4)
        assert peer.last_frame.load.waiting == 0


@pytest.mark.parametrize("refused", [False, True])
async def test_an_abort_while_a_submit_is_prepared_reaches_the_engine(address: str, refused: bool) -> None:
    """The slot stays in use until its one terminal event, which is a refusal if the engine does not start it."""
    engine = PreparingEngine()
    async with running_worker(address, engine) as worker, in_session(address) as peer:
        await peer.send(submit=with_grammar([1, 2]))
        await peer.send(abort=pb.Abort(slots=[1, 2]))
        await asyncio.wait_for(engine.aborts.wait(), TIMEOUT_S)

        assert engine.aborted == engine.preparing
        assert worker.server_info().open_slots == 2
        engine.submit_error = InvalidRequest("no such grammar") if refused else None
        engine.prepared.set()
        await peer.read_until_ended(1, 2)
        assert worker.server_info().open_slots == 0
        engine.submit_error = None
        await peer.send(submit=submit_message(slots=[1]))
        await until(lambda: 1 in engine.submitted and engine.submitted[1] not in engine.preparing)
        engine.emit({1: [65]}, ends={1: pb.FINISH_REASON_STOP})
        peer.endings.clear()
        await peer.read_until_ended(1)
        assert len(peer.refusals) == refused
        assert peer.endings == {1: 1}


@pytest.mark.parametrize("gently", [True, False])
async def test_a_session_that_ends_while_a_submit_is_prepared_leaves_nothing(address: str, gently: bool) -> None:
    """The preparation is cancelled, and what it may have started is aborted; other sessions go on."""
    engine = PreparingEngine()
    async with running_worker(address, engine) as worker, in_session(address) as other:
        await other.send(submit=submit_message(slots=[0]))
        async with in_session(address) as peer:
            await peer.send(submit=with_grammar([1, 2]))
            await until(lambda: len(engine.preparing) == 2)
            if gently:
                await peer.call.done_writing()
            else:
                peer.call.cancel()
            await asyncio.wait_for(engine.aborts.wait(), TIMEOUT_S)

        await until(lambda: worker.server_info().sessions == 1)
        assert engine.cancelled == engine.aborted == engine.preparing
        assert set(engine.submitted) == {0}
        assert worker.server_info().open_slots == 1
        engine.emit({0: [66]}, ends={0: pb.FINISH_REASON_STOP})
        await other.read_until_ended(0)


async def test_a_sequence_that_ended_while_it_was_submitted_is_not_waited_for(address: str) -> None:
    """Though its slot already carries another request."""
    engine = PreparingEngine()
    async with running_worker(address, engine) as worker, in_session(address) as peer:
        await peer.send(submit=with_grammar([1]))
        await until(lambda: bool(engine.preparing))
        (engine.submitted[1],) = engine.preparing
        engine.emit({1: [65]}, ends={1: pb.FINISH_REASON_STOP})
        await peer.read_until_ended(1)
        await peer.send(submit=submit_message(slots=[1]))
        await until(lambda: engine.submitted[1] not in engine.preparing)
        second = engine.submitted[1]
        engine.prepared.set()
        await until(lambda: engine.submitted[1] in engine.preparing)

        engine.submitted[1] = second
        engine.emit({1: [66]}, ends={1: pb.FINISH_REASON_STOP})
        await until(lambda: worker.server_info().open_slots == 0)
        assert worker._stall_detector.stalled_s == 0.0


class SlowReader:
    """A stream to a coordinator on which a write blocks until the test takes the event."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[pb.SessionResponse] = asyncio.Queue()
        self._taken = asyncio.Semaphore(0)
        self.hung_up = asyncio.Event()

    async def write(self, event: pb.SessionResponse) -> None:
        """Wait for the reader."""
        self._events.put_nowait(event)
        await self._taken.acquire()

    async def take(self) -> pb.SessionResponse:
        """Read one event."""
        event = await asyncio.wait_for(self._events.get(), TIMEOUT_S)
        self._taken.release()
        return event

    async def requests(self) -> AsyncIterator[pb.SessionRequest]:
        """Send a hello and one request of two sequences, then keep the stream open."""
        yield pb.SessionRequest(hello=pb.Hello(protocol=protocol_version()))
        yield pb.SessionRequest(submit=submit_message(slots=[1, 2]))
        await self.hung_up.wait()


async def test_a_coordinator_that_reads_slowly_gets_merged_steps(address: str) -> None:
    """Unsent steps become one frame: nothing is lost, duplicated or out of order, finishes included."""
    engine, reader = ScriptedEngine(), SlowReader()
    async with running_worker(address, engine) as worker:
        session = asyncio.create_task(worker.Session(reader.requests(), cast(SessionContext, reader)))
        assert (await reader.take()).HasField("welcome")
        await until(lambda: worker.server_info().open_slots == 2)

        engine.emit({1: [100], 2: [200]})
        await until(lambda: worker.server_info().steps == 1)
        await asyncio.sleep(0)  # now its frame is being written
        engine.emit({1: [101]})
        engine.emit({1: [102, 103], 2: [201]})
        engine.emit({1: [104]}, ends={1: pb.FINISH_REASON_LENGTH})
        engine.emit({2: [202]})
        await until(lambda: worker.server_info().steps == 5)
        first, second = (await reader.take()).frame, (await reader.take()).frame

        assert (list(first.slots), list(first.token_ids), list(first.finishes)) == ([1, 2], [100, 200], [])
        assert (list(second.slots), list(second.counts)) == ([1, 2], [4, 2])
        assert list(second.token_ids) == [101, 102, 103, 104, 201, 202]
        assert [(finish.slot, finish.reason) for finish in second.finishes] == [(1, pb.FINISH_REASON_LENGTH)]
        reader.hung_up.set()
        await session
        assert [sequence.slot for sequence in engine.aborted] == [2]


async def test_a_session_that_is_cancelled_twice_leaves_nothing(address: str) -> None:
    """The second time while it ends."""
    engine, reader = ScriptedEngine(), SlowReader()
    async with running_worker(address, engine) as worker:
        session = asyncio.create_task(worker.Session(reader.requests(), cast(SessionContext, reader)))
        await reader.take()
        await until(lambda: worker.server_info().open_slots == 2)

        session.cancel()
        await asyncio.sleep(0)
        session.cancel()

        await asyncio.wait_for(engine.aborts.wait(), TIMEOUT_S)
        assert [sequence.slot for sequence in engine.aborted] == [1, 2]


ABORTS: dict[str, Callable[[control_pb2_grpc.ControlStub], Awaitable[object]]] = {
    "by id": lambda stub: stub.Abort(control.AbortRequest(request_ids=["request"])),
    "all": lambda stub: stub.Abort(control.AbortRequest(all=True)),
    "pause": lambda stub: stub.PauseGeneration(control.PauseGenerationRequest(mode=control.PAUSE_MODE_ABORT)),
    "sleep": lambda stub: stub.Sleep(control.SleepRequest(level=0, mode=control.PAUSE_MODE_ABORT)),
}


@pytest.mark.parametrize("abort", ABORTS.values(), ids=ABORTS)
async def test_a_resumed_request_that_was_aborted_ends_at_once(
    address: str, abort: Callable[[control_pb2_grpc.ControlStub], Awaitable[object]]
) -> None:
    """However it was aborted: its coordinator may have lost another worker before it got the end of it."""
    resumed = submit_message(LONG, slots=[0, 1])
    resumed.resumed_after_ms = 60_000
    engine = ScriptedEngine()
    async with running_worker(address, engine) as worker, connected_peer(address) as peer:
        await peer.hello()
        await abort(peer.control)
        await peer.send(submit=resumed)
        while not peer.endings[0]:
            await peer.read()

        assert [peer.finishes[slot].reason for slot in (0, 1)] == [pb.FINISH_REASON_ABORT] * 2
        assert peer.last_frame.HasField("load")
        assert peer.last_frame.weight_version == worker.welcome().weight_version
        assert not engine.submitted
        assert worker.server_info().open_slots == 0


async def test_a_pause_that_keeps_requests_ends_no_resumed_one(address: str) -> None:
    """It is held like the running ones."""
    resumed = submit_message(LONG, slots=[0])
    resumed.resumed_after_ms = 60_000
    engine = ScriptedEngine()
    async with running_worker(address, engine), connected_peer(address) as peer:
        await peer.hello()
        await peer.control.PauseGeneration(control.PauseGenerationRequest(mode=control.PAUSE_MODE_KEEP))
        await peer.send(submit=resumed)

        await until(lambda: 0 in engine.submitted)


def pool_message(slots: list[int], inputs: list[list[int]]) -> pb.Pool:
    """Return a command to embed inputs."""
    params = pb.PoolingParams(task="embed", dtype="float32")
    ids = [token for each in inputs for token in each]
    return pb.Pool(request_id="request", slots=slots, lengths=map(len, inputs), token_ids=ids, params=params)


async def test_inputs_end_with_their_results(address: str) -> None:
    """Each slot gets one, in as many frames as the engine's steps; refused inputs end together."""
    async with running_worker(address, embedding_width=4, max_num_seqs=2) as worker, in_session(address) as peer:
        await peer.send(pool=pool_message([3, 5, 9], [[65], [66, 67], [65]]))
        await peer.read_until_ended(3, 5, 9)

        results = {slot: finish.pooled for slot, finish in peer.finishes.items()}
        assert results.keys() == {3, 5, 9}
        assert results[3] == results[9] != results[5]
        await peer.send(pool=pool_message([4, 6], [[65], []]))
        await peer.read_until_ended(4, 6)
        assert (list(peer.refusals[0].slots), peer.refusals[0].code) == ([4, 6], pb.REFUSAL_CODE_INVALID)
        assert worker.server_info().open_slots == 0
