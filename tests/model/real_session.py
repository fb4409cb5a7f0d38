"""Both ends of a session, real: WorkerSession with its SlotTable, and Session with its FrameBuffer.

One file, since both ends take the same inputs.
"""

import asyncio
from collections.abc import Hashable
from typing import Any, NamedTuple, NoReturn, cast

import grpc

from tests.model.stepped_loop import SteppedLoop
from tests.workers import IDENTITY
from tokenwire.coordinator.fleet.liveness import LivenessSettings
from tokenwire.coordinator.fleet.session import FetchFiles, WorkerSession
from tokenwire.coordinator.fleet.slots import SlotListener
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.coordinator.fleet.transport.base import CommandQueue, WorkerTransport
from tokenwire.errors import Overloaded, TokenwireError, Unavailable
from tokenwire.protocol.version import protocol_version
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.frame_buffer import FrameBuffer
from tokenwire.worker.engine.interface import Engine, EngineSequence
from tokenwire.worker.services.session import Session

TOKEN = "token"
ENDED = "ended"
WRONG = "something that is not its own"


class Input(NamedTuple):
    """Something that happens to one end: what, to which request, and the message that arrives."""

    kind: str
    request: int = -1
    message: bytes = b""

    def __str__(self) -> str:
        return f"{self.kind}{f' {self.request}' if self.request >= 0 else ''}"


class QuietListener(SlotListener):
    """Takes nothing but tokens and the end."""

    @property
    def gained(self) -> int:
        return 0

    @property
    def cached_tokens(self) -> int:
        return 0

    def prefilled(self, info: pb.PrefillInfo) -> None:
        pass

    def scored(self, rows: pb.LogprobRows) -> None:
        pass

    def weights(self, version: str) -> None:
        pass

    def resumed(self) -> None:
        pass


class _Recorder(QuietListener):
    """The listener of one request; it may stop its sequence at the first token."""

    def __init__(self, request: int, stops: bool) -> None:
        self.received: list[str] = []
        self._request = request
        self._stops = stops

    def step(self, token_ids: list[int], finish: pb.Finish | None) -> bool:
        self.received += [TOKEN if each == self._request else WRONG for each in token_ids]
        if finish is not None or (self._stops and token_ids):
            self.received.append(ENDED)
        return self._stops and bool(token_ids)

    def fail(self, error: TokenwireError) -> None:
        self.received.append(ENDED)


class FedTransport:
    """Reads what a model puts in; the end of the connection is an error, as a broken one is."""

    control = None
    sends_steps = True

    def __init__(self, commands: CommandQueue) -> None:
        self.commands = commands
        self.events: asyncio.Queue[pb.SessionResponse | None] = asyncio.Queue()

    async def read(self) -> pb.SessionResponse:
        event = await self.events.get()
        if event is None:
            raise Unavailable("the connection broke")
        return event

    async def fetch_tokenizer(self) -> dict[str, bytes]:
        return {}

    async def close(self) -> None:
        pass


class CoordinatorKey(NamedTuple):
    """What decides what the coordinator's end does from now on."""

    received: tuple[tuple[str, ...], ...]
    slots: tuple[int, ...]
    """By request; -1 once it is no longer open."""
    free: tuple[int, ...]
    open: int
    loss: str
    """Why the session ended; empty while it has not."""


class CoordinatorEnd:
    """The coordinator's end: requests are submitted and aborted, and the worker's events arrive."""

    def __init__(self, loop: SteppedLoop, requests: int, stopping: frozenset[int]) -> None:
        self._loop = loop
        self._recorders = [_Recorder(request, request in stopping) for request in range(requests)]
        self._slot_of: dict[int, int] = {}
        self._transport: FedTransport | None = None
        self.session = WorkerSession(
            "worker", "coordinator", _prepared, open_transport=self._open, liveness=LivenessSettings(0)
        )
        loop.create_task(self.session.run())
        loop.settle()
        model = pb.Model(names=["model"], **IDENTITY)
        welcome = pb.Welcome(protocol=protocol_version(), instance_id="i", model=model, heartbeat_ms=500)
        self.feed(Input("event", message=pb.SessionResponse(welcome=welcome).SerializeToString()))

    def feed(self, event: Input) -> tuple[bytes, ...]:
        """Let something happen; return the commands that are sent."""
        assert self._transport is not None
        session = self.session
        match event.kind:
            case "submit":
                submission = Submission(request_id=str(event.request))
                (self._slot_of[event.request],) = session.submit(submission, [self._recorders[event.request]])
            case "abort":
                session.abort([self._slot_of[event.request]])
            case "event":
                self._transport.events.put_nowait(pb.SessionResponse.FromString(event.message))
            case "lost":
                self._transport.events.put_nowait(None)
        self._loop.settle()
        return self._sent()

    def key(self) -> CoordinatorKey:
        table = self.session._slots
        slots = [self._slot_of.get(request, -1) for request in range(len(self._recorders))]
        held = [
            slot if slot >= 0 and self.session.listens(slot, recorder) else -1
            for slot, recorder in zip(slots, self._recorders, strict=True)
        ]
        connected = self.session.control is not None or self.session.state.value != "connecting"
        loss = "" if connected else str(self.session._liveness.loss_reason.value)
        received = tuple(tuple(recorder.received) for recorder in self._recorders)
        return CoordinatorKey(received, tuple(held), tuple(table._free), table.open, loss)

    def _open(self, address: str, commands: CommandQueue) -> WorkerTransport:
        self._transport = FedTransport(commands)
        return cast("WorkerTransport", self._transport)

    def _sent(self) -> tuple[bytes, ...]:
        assert self._transport is not None
        queue, sent = self._transport.commands._commands, []
        while queue:
            command = queue.popleft()
            if command is not None and command.WhichOneof("command") != "hello":
                sent.append(command.SerializeToString())
        return tuple(sent)


async def _prepared(model: pb.Model, fetch: FetchFiles) -> None:
    pass


class _Engine:
    """Accepts or refuses sequences, and generates one step at a time."""

    def __init__(self) -> None:
        self.sequences: dict[int, EngineSequence] = {}
        """By request."""
        self.generated: set[int] = set()
        self.aborted: set[int] = set()
        self.refuses = False

    async def submit(self, submit: pb.Submit, sequences: list[EngineSequence]) -> None:
        if self.refuses:
            raise Overloaded("full", retry_after_s=1)
        self.sequences[int(submit.request_id)] = sequences[0]

    async def abort(self, sequences: list[EngineSequence]) -> None:
        self.aborted.update(int(sequence.request_id) for sequence in sequences)


class _TakenBuffer(FrameBuffer):
    """Keeps what was taken and not written yet."""

    def __init__(self, session: Session) -> None:
        super().__init__(session._close_slot)
        self.taken: list[pb.SessionResponse] = []

    async def take(self) -> list[pb.SessionResponse]:
        self.taken = await super().take()
        return list(self.taken)


class _Stream:
    """The worker's side of the stream: an event is written when the test lets it."""

    def __init__(self) -> None:
        self.writing: pb.SessionResponse | None = None
        self.ended = ""
        self._written = asyncio.Event()

    async def write(self, event: pb.SessionResponse) -> None:
        if event.WhichOneof("event") == "welcome":
            return
        self.writing = event
        self._written.clear()
        await self._written.wait()

    def take(self) -> bytes:
        assert self.writing is not None
        event, self.writing = self.writing, None
        self._written.set()
        return event.SerializeToString()

    async def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        self.ended = details
        raise asyncio.CancelledError


class WorkerEndKey(NamedTuple):
    """What decides what the worker's end does from now on."""

    running: tuple[int, ...]
    generated: tuple[int, ...]
    aborted: tuple[int, ...]
    open: int
    writes: bool
    """Whether an event can be sent."""
    ended: str
    """Why the worker ended the session."""
    rest: tuple[Hashable, ...]


class WorkerEnd:
    """The worker's end: commands arrive, the engine generates and ends sequences, events are sent one by one."""

    def __init__(self, loop: SteppedLoop) -> None:
        self._loop = loop
        self._engine, self._stream, self._commands = _Engine(), _Stream(), CommandQueue()
        self._handing_back = self._lost = False
        engine = cast("Engine", self._engine)
        self._session = Session(engine, self)
        self._session._frame_buffer = self._buffer = _TakenBuffer(self._session)
        context = cast("grpc.aio.ServicerContext[Any, Any]", self._stream)
        loop.create_task(self._session.run(self._commands, context))
        hello = pb.Hello(protocol=protocol_version(), coordinator_id="coordinator")
        self._commands.put(pb.SessionRequest(hello=hello))
        loop.settle()

    # The session's host.

    @property
    def is_draining(self) -> bool:
        """Whether it hands back."""
        return self._handing_back

    def welcome(self) -> pb.Welcome:
        """Return an empty one."""
        return pb.Welcome()

    def was_aborted(self, submit: pb.Submit | pb.Pool) -> bool:
        """Return False."""
        return False

    def check_adapter(self, adapter: pb.LoraAdapter) -> None:
        """Accept all."""

    def on_submitted(self, sequences: list[EngineSequence], prompt_tokens: int) -> None:
        """Do nothing."""

    def feed(self, event: Input) -> tuple[bytes, ...]:
        """Let something happen; return the events that are sent."""
        sent: tuple[bytes, ...] = ()
        match event.kind:
            case "command" | "refuse":
                self._engine.refuses = event.kind == "refuse"
                self._commands.put(pb.SessionRequest.FromString(event.message))
            case "generate":
                self._engine.generated.add(event.request)
                sequence = self._engine.sequences[event.request]
                sequence.frame_buffer.add_tokens(sequence.slot, [event.request])
            case "end":
                self._end(event.request)
            case "hand back":
                self._handing_back = True
                self._loop.create_task(self._session.abort_all())
            case "send":
                sent = (self._stream.take(),)
                self._buffer.taken.pop(0)
            case "lost":
                self._lost, self._stream.writing = True, None
                self._commands.close()
        self._session.frame_buffer.flush(pb.Load(), "")
        self._loop.settle()
        return sent

    def _end(self, request: int) -> None:
        """As WorkerServer does with a step of the engine."""
        engine = self._engine
        sequence = engine.sequences.pop(request)
        aborted = request in engine.aborted
        reason = pb.FINISH_REASON_ABORT if aborted else pb.FINISH_REASON_STOP
        finish = pb.Finish(reason=reason, handed_back=aborted and self._handing_back)
        sequence.frame_buffer.add_finish(sequence.slot, finish)

    def key(self) -> WorkerEndKey:
        engine, stream, buffer = self._engine, self._stream, self._buffer
        unsent = (
            tuple((slot, tuple(ids)) for slot, ids in buffer._tokens.items()),
            tuple(finish.SerializeToString() for finish in buffer._finishes),
            tuple(event.SerializeToString() for event in buffer._events),
            tuple(event.SerializeToString() for event in buffer.taken),
        )
        slots = tuple(sorted((request, each.slot) for request, each in engine.sequences.items()))
        rest = (unsent, slots, tuple(sorted(self._session._slots)), self._handing_back, self._lost)
        return WorkerEndKey(
            tuple(sorted(engine.sequences)),
            tuple(sorted(engine.generated)),
            tuple(sorted(engine.aborted)),
            self._session.open_slots,
            stream.writing is not None,
            stream.ended,
            rest,
        )
