"""A coordinator's end of a reply that moves from worker to worker: Failover over real sessions."""

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple, cast

from tests.model.real_session import FedTransport, Input, QuietListener
from tests.model.stepped_loop import SteppedLoop
from tests.workers import IDENTITY
from tokenwire.coordinator.fleet.failover.failover import Failover
from tokenwire.coordinator.fleet.failover.replay import Replay
from tokenwire.coordinator.fleet.failover.settings import FailoverSettings
from tokenwire.coordinator.fleet.liveness import LivenessSettings
from tokenwire.coordinator.fleet.placed_request import PlacedRequest
from tokenwire.coordinator.fleet.request_handle import NEW, LateTenant, Placement, RequestHandle, SubmissionHandle
from tokenwire.coordinator.fleet.routing import Decision, RoutingInputs
from tokenwire.coordinator.fleet.session import FetchFiles, WorkerSession
from tokenwire.coordinator.fleet.session_listener import SessionState
from tokenwire.coordinator.fleet.slots import SlotListener
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.coordinator.fleet.transport.base import CommandQueue, WorkerTransport
from tokenwire.errors import TokenwireError, Unavailable
from tokenwire.protocol.model_revision import ModelRevision
from tokenwire.protocol.version import protocol_version
from tokenwire.v1 import inference_pb2 as pb

PROMPT = (1000,)
"""The ids of the reply are those of their positions: 0, 1, 2 ..."""


class ReplyKey(NamedTuple):
    """What decides what the coordinator does from now on."""

    received: tuple[int, ...]
    """What the client has got, in order."""
    ends: tuple[str, ...]
    """Its ends."""
    open: tuple[int, ...]
    """Open slots of each worker."""
    is_moving: bool
    """Whether a worker drains whose sequences are still to be moved."""
    rest: str


class _Client(QuietListener):
    """Takes the reply."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self.ends: list[str] = []

    def step(self, token_ids: list[int], finish: pb.Finish | None) -> bool:
        self.received += token_ids
        if finish is not None:
            self.ends.append(pb.FinishReason.Name(finish.reason))
        return False

    def fail(self, error: TokenwireError) -> None:
        self.ends.append(type(error).__name__)


class FailoverEnd:
    """One request, its failover, and sessions with some workers. A worker that is lost does not come back."""

    def __init__(self, loop: SteppedLoop, workers: int, tokens: int, replays: bool) -> None:
        """`replays`: the engines' generators have state, so a lost reply is generated again from the start."""
        self._loop = loop
        self._engines = pb.EngineCapabilities(seeds=True, positional_seeds=not replays, batch_invariant=True)
        self._client = _Client()
        self.failover = Failover(self, FailoverSettings(), self)
        self._transports: list[FedTransport] = []
        self._sessions = [self._connect(worker) for worker in range(workers)]
        params = pb.SamplingParams(temperature=1.0, seed=1)
        self._request = Submission("r", PROMPT, params, max_tokens=tokens)
        self._handle: RequestHandle | None = None

    def _connect(self, worker: int) -> WorkerSession:
        session = WorkerSession(
            f"worker {worker}", "coordinator", _prepared, open_transport=self._open, liveness=LivenessSettings(0)
        )
        self._loop.create_task(session.run())
        self._loop.settle()
        model = pb.Model(names=["model"], max_num_seqs=4, **IDENTITY)
        welcome = pb.Welcome(protocol=protocol_version(), instance_id=f"i{worker}", model=model, heartbeat_ms=500)
        welcome.capabilities.CopyFrom(self._engines)
        self._transports[-1].events.put_nowait(pb.SessionResponse(welcome=welcome))
        self._loop.settle()
        return session

    def _open(self, address: str, commands: CommandQueue) -> WorkerTransport:
        self._transports.append(FedTransport(commands))
        return cast("WorkerTransport", self._transports[-1])

    # What happens.

    def feed(self, event: Input) -> tuple[tuple[bytes, ...], ...]:
        """Let something happen; return the commands that are sent to each worker. `request` is a worker's number."""
        self._loop.call_soon(self._begin_event, event)
        self._loop.settle()
        return tuple(tuple(_sent(transport)) for transport in self._transports)

    def _begin_event(self, event: Input) -> None:
        match event.kind:
            case "submit":
                self._handle = self.failover.submit("model", self._request, [self._client])
            case "leave":
                assert self._handle is not None
                self._handle.abort()
            case "event":
                self._transports[event.request].events.put_nowait(pb.SessionResponse.FromString(event.message))
            case "lost":
                self._transports[event.request].events.put_nowait(None)
            case "drains":
                self.failover.on_worker_draining(self._sessions[event.request])
            case "move":
                self.failover._on_tick()

    def key(self) -> ReplyKey:
        """Return what the client has, and all that decides what comes."""
        sessions = self._sessions
        sequences = [
            (each.session and sessions.index(each.session), tuple(each.token_ids), sorted(each.avoid), each.gained)
            for each in self.failover.live
        ]
        replays = [
            listener._seen for each in sessions for listener in each._slots.listeners if isinstance(listener, Replay)
        ]
        slots = [
            (each.state.value, each.worker_drains, each.open_slots, tuple(each._slots._free), _held(each))
            for each in sessions
        ]
        rest = repr((sequences, replays, slots, self._handle is None))
        return ReplyKey(
            tuple(self._client.received),
            tuple(self._client.ends),
            tuple(each.open_slots for each in sessions),
            bool(self.failover._draining),
            rest,
        )

    # The layers below failover.

    def check_open(self, model: str, adapter_id: int, placement: Placement = NEW, sequences: int = 1) -> None:
        """Admit all."""

    def submit(
        self, model: str, submission: Submission, listeners: Sequence[SlotListener], placement: Placement = NEW
    ) -> SubmissionHandle:
        """Send a request to the first worker that can take it."""
        ready = [each for each in self._sessions if each.state is SessionState.READY]
        if not ready:  # the loop ends
            raise Unavailable("no worker is left")
        session = next((each for each in ready if each.instance_id not in placement.avoid), ready[0])
        placement.on_placed(session, submission, 1)
        decision = Decision(session, RoutingInputs(1), 0, 1, 0, 0, "load")
        return PlacedRequest(decision, session.submit(submission, listeners), listeners)

    def read_work(self) -> None:
        """Count nothing."""

    def late(self, after_s: float) -> Sequence[LateTenant]:
        """Return that nobody waits."""
        return ()

    def free_capacity(
        self, model: str, adapter_id: int = 0, revision: ModelRevision | None = None, seeded_noise: str = ""
    ) -> int:
        """Return that there is some, as long as a worker is ready."""
        return sum(each.state is SessionState.READY for each in self._sessions)

    def capabilities(
        self, model: str, adapter_id: int = 0, revision: ModelRevision | None = None, seeded_noise: str = ""
    ) -> pb.EngineCapabilities:
        """Return those of all workers."""
        return self._engines

    def draws(self, model: str, adapter_id: int, revision: ModelRevision | None, seeded_noise: str) -> bool:
        """Return that all do."""
        return True

    def has_other(self, model: str, adapter_id: int, revision: ModelRevision | None, than: Collection[str]) -> bool:
        """Return whether another one is ready."""
        ready = (each for each in self._sessions if each.state is SessionState.READY)
        return any(each.address not in than for each in ready)

    def is_alive(self, instance_id: str) -> bool | None:
        """Return that no worker has died: connections break."""
        return True


def _held(session: WorkerSession) -> tuple[str, ...]:
    return tuple(type(listener).__name__ for listener in session._slots.listeners)


def _sent(transport: FedTransport) -> Iterator[bytes]:
    queue = transport.commands._commands
    while queue:
        command = queue.popleft()
        if command is not None and command.WhichOneof("command") != "hello":
            if command.HasField("submit"):
                command.submit.ClearField("resumed_after_ms")  # real time
            yield command.SerializeToString()


async def _prepared(model: pb.Model, fetch: FetchFiles) -> None:
    pass
