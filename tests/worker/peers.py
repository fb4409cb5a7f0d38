"""Both peers of a worker: a scripted engine, and a bare coordinator on a real socket."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tokenwire.errors import EngineFailed
from tokenwire.peer_auth.grpc_options import open_channel
from tokenwire.protocol.version import protocol_version
from tokenwire.v1 import control_pb2_grpc, inference_pb2_grpc
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.interface import EngineSequence, Step
from tokenwire.worker.simulated_engine.engine import SimulatedEngine
from tokenwire.worker.simulated_engine.settings import SimulationSettings

TIMEOUT_S = 10.0


class ScriptedEngine(SimulatedEngine):
    """An engine whose steps are supplied by the test."""

    def __init__(self) -> None:
        super().__init__(SimulationSettings())
        self.submitted: dict[int, EngineSequence] = {}
        """Submitted sequences, the last one of each slot."""
        self.aborted: list[EngineSequence] = []
        self.aborts = asyncio.Event()
        """Set by every abort."""
        self.submit_error: Exception | None = None
        """Raised by `submit`."""
        self._steps: asyncio.Queue[Step | str | None] = asyncio.Queue()

    async def submit(self, submit: pb.Submit, sequences: list[EngineSequence]) -> None:
        """Record the sequences, or raise `submit_error`."""
        if self.submit_error is not None:
            raise self.submit_error
        self.submitted.update((sequence.slot, sequence) for sequence in sequences)

    async def abort(self, sequences: list[EngineSequence]) -> None:
        """Record the sequences; the test ends them."""
        self.aborted += sequences
        self.aborts.set()

    async def steps(self) -> AsyncIterator[Step]:
        """Yield the steps that the test supplies."""
        while isinstance(step := await self._steps.get(), Step):
            yield step
        if step is not None:
            raise EngineFailed(step)

    async def stop(self) -> None:
        """End the steps."""
        self._steps.put_nowait(None)
        await super().stop()

    def emit(self, tokens: dict[int, list[int]], ends: dict[int, "pb.FinishReason"] | None = None) -> None:
        """Emit a step: new tokens by slot, and slots that end."""
        self._steps.put_nowait(
            Step(
                sequences=[self.submitted[slot] for slot in tokens],
                token_ids=list(tokens.values()),
                finishes=[(self.submitted[slot], pb.Finish(reason=reason)) for slot, reason in (ends or {}).items()],
            )
        )

    def die(self, message: str) -> None:
        """Fail the steps without finishing any sequence."""
        self._steps.put_nowait(message)

    def end_steps(self) -> None:
        """End the steps without a stop."""
        self._steps.put_nowait(None)


class PreparingEngine(ScriptedEngine):
    """An engine that prepares requests with a grammar until the test lets it; aborts meanwhile win."""

    def __init__(self) -> None:
        super().__init__()
        self.preparing: list[EngineSequence] = []
        self.prepared = asyncio.Event()
        self.cancelled: list[EngineSequence] = []
        """Sequences whose submit was cancelled."""

    async def submit(self, submit: pb.Submit, sequences: list[EngineSequence]) -> None:
        """Wait for `prepared`, or record the sequences at once."""
        if not submit.sampling_params.HasField("structured_outputs"):
            return await super().submit(submit, sequences)
        self.preparing += sequences
        try:
            await self.prepared.wait()
        except asyncio.CancelledError:
            self.cancelled += sequences
            raise
        await super().submit(submit, sequences)
        early = [sequence.slot for sequence in sequences if sequence in self.aborted]
        if early:
            self.emit({}, ends=dict.fromkeys(early, pb.FINISH_REASON_ABORT))


class Peer:
    """A client of a worker: control and health calls, and one session that records what it reads."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.control = control_pb2_grpc.ControlStub(channel)
        self.call = inference_pb2_grpc.InferenceStub(channel).Session()
        self.tokens: dict[int, list[int]] = {}
        self.endings: Counter[int] = Counter()
        """Terminal events by slot."""
        self.finishes: dict[int, pb.Finish] = {}
        self.refusals: list[pb.Refusal] = []
        self.draining: list[pb.Draining] = []
        self.serving: list[pb.ServingState] = []
        self.frames = 0
        self.last_frame = pb.StepFrame()
        self._health = health_pb2_grpc.HealthStub(channel)

    async def hello(self) -> pb.Welcome:
        """Open the session."""
        await self.send(hello=pb.Hello(protocol=protocol_version(), coordinator_id="peer"))
        event = await self._next()
        assert event.WhichOneof("event") == "welcome"
        return event.welcome

    async def send(self, **command: object) -> None:
        """Send one command."""
        await self.call.write(pb.SessionRequest(**command))  # type: ignore[arg-type]

    async def read(self) -> None:
        """Read one event."""
        event = await self._next()
        match event.WhichOneof("event"):
            case "frame":
                self._take(event.frame)
            case "refusal":
                self.refusals.append(event.refusal)
                self.endings.update(event.refusal.slots)
            case "draining":
                self.draining.append(event.draining)
            case "serving":
                self.serving.append(event.serving)
            case other:
                raise AssertionError(f"unexpected event {other}")

    async def read_until_ended(self, *slots: int) -> None:
        """Read until each of these slots has had a terminal event."""
        while not all(self.endings[slot] for slot in slots):
            await self.read()

    async def read_to_end(self) -> None:
        """Read until the worker ends the session; raise its error."""
        while await self.call.read() is not grpc.aio.EOF:
            pass

    async def health(self, service: str = "") -> str:
        """Return a service's health status."""
        answer = await self._health.Check(health_pb2.HealthCheckRequest(service=service))
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))

    async def _next(self) -> pb.SessionResponse:
        event = await asyncio.wait_for(self.call.read(), TIMEOUT_S)
        assert event is not grpc.aio.EOF, "the worker ended the session"
        assert isinstance(event, pb.SessionResponse)
        return event

    def _take(self, frame: pb.StepFrame) -> None:
        self.frames += 1
        self.last_frame = frame
        start = 0
        assert len(set(frame.slots)) == len(frame.slots), "a slot came twice in one frame"
        for slot, count in zip(frame.slots, frame.counts or [1] * len(frame.slots), strict=True):
            assert not self.endings[slot], "tokens after the end"
            self.tokens.setdefault(slot, []).extend(frame.token_ids[start : start + count])
            start += count
        for finish in frame.finishes:
            self.endings[finish.slot] += 1
            self.finishes[finish.slot] = finish


@asynccontextmanager
async def connected_peer(address: str) -> AsyncIterator[Peer]:
    """Connect to a worker without opening a session."""
    async with open_channel(address) as channel:
        peer = Peer(channel)
        try:
            yield peer
        finally:
            peer.call.cancel()


@asynccontextmanager
async def in_session(address: str) -> AsyncIterator[Peer]:
    """Connect to a worker and open a session."""
    async with connected_peer(address) as peer:
        await peer.hello()
        yield peer
