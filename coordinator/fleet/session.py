"""The coordinator's session with one worker: connect, submit, abort, reconnect."""

import asyncio
import enum
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial

from tokenwire import protocol
from tokenwire.coordinator.fleet.circuit_breaker import CircuitBreaker
from tokenwire.coordinator.fleet.frames import dispatch
from tokenwire.coordinator.fleet.liveness import LivenessMonitor, LivenessSettings, LossReason
from tokenwire.coordinator.fleet.recent_starts import RecentStarts
from tokenwire.coordinator.fleet.session_listener import SessionListener
from tokenwire.coordinator.fleet.session_stats import SessionStats, StatsByModel
from tokenwire.coordinator.fleet.slots import SlotListener, SlotTable, fail_listener
from tokenwire.coordinator.fleet.transport.base import OpenTransport, WorkerTransport
from tokenwire.coordinator.fleet.transport.grpc import GrpcTransport
from tokenwire.coordinator.fleet.workload import Workload
from tokenwire.errors import ProtocolError, TokenwireError, Unavailable, WorkerLost, from_refusal
from tokenwire.peer_auth.client import Link
from tokenwire.v1 import control_pb2_grpc
from tokenwire.v1 import inference_pb2 as pb

log = logging.getLogger(__name__)

FetchFiles = Callable[[], Awaitable[dict[str, bytes]]]
Prepare = Callable[[pb.Model, FetchFiles], Awaitable[None]]
"""Called with a worker's model, and a way to fetch its tokenizer files, before the worker gets requests."""

_FIRST_RETRY_S = 0.2
_LAST_RETRY_S = 5.0


class SessionState(enum.Enum):
    """Where a session stands."""

    CONNECTING = "connecting"
    READY = "ready"
    STALLED = "stalled"
    """Connected, but its engine makes no steps, and no other worker could take over."""
    DRAINING = "draining"


class WorkerSession:
    """Keeps one session with one worker open, and reconnects for as long as `run` runs."""

    def __init__(
        self,
        address: str,
        coordinator_id: str,
        prepare: Prepare,
        listener: SessionListener | None = None,
        open_transport: OpenTransport | None = None,
        liveness: LivenessSettings | None = None,
        stats_by_model: StatsByModel | None = None,
    ) -> None:
        """It counts in the stats of its model."""
        self.address = address
        self.state = SessionState.CONNECTING
        self.instance_id = ""
        """Names the worker's process; empty before its first welcome."""
        self.model: pb.Model | None = None
        self.name = ""
        """First name of the model that the worker serves; empty before its first welcome."""
        self.weight_version = ""
        """Label of the weights that made the last tokens."""
        self.serving = pb.ServingState()
        """What fleet operations have made of the worker."""
        self.capabilities = pb.EngineCapabilities()
        """How its engine draws tokens."""
        self.last_error = "not connected yet"
        self.ready = asyncio.Event()
        self._coordinator_id = coordinator_id
        self._prepare = prepare
        self._listener = listener or SessionListener()
        self._open_transport = open_transport or partial(GrpcTransport, Link())
        self._slots = SlotTable()
        self.workload = Workload(self._slots)
        """What the worker has to do."""
        self._stats_by_model = {} if stats_by_model is None else stats_by_model
        self._stats = SessionStats()
        self._frame_at: float | None = None
        """When the last frame came; None where frames are not whole steps."""
        self.recent_starts = RecentStarts(partial(self._listener.on_survived, self))
        """What the worker has just begun with."""
        self.breaker = CircuitBreaker()
        self.lives: bool | None = False
        """Whether the worker's process runs; None after a loss, until the next attempt to connect shows it."""
        self.losses = dict.fromkeys(LossReason, 0)
        """How often the worker was lost without having announced it."""
        self._liveness = LivenessMonitor(liveness or LivenessSettings(), worker=address)
        self._retired = False
        self.worker_drains = False
        """Whether the worker has said that it is about to stop."""
        self.engine_died = False
        """Whether that is because its engine died."""
        self._commands: asyncio.Queue[pb.SessionRequest] = asyncio.Queue()
        self._transport: WorkerTransport | None = None

    @property
    def control(self) -> control_pb2_grpc.ControlStub | None:
        """The worker's control calls; None while it is not connected."""
        connected = self._transport is not None and self.state is not SessionState.CONNECTING
        return self._transport.control if self._transport is not None and connected else None

    @property
    def open_slots(self) -> int:
        """Slots without their terminal event."""
        return self._slots.open

    def on_serving_state(self, serving: pb.ServingState) -> None:
        """Take the worker's state, from an event or an answer, unless a newer one is known."""
        if serving.revision > self.serving.revision:
            self.serving = serving
            self._listener.on_session_change(self)

    # Commands.

    def submit(self, submit: pb.Submit, listeners: Sequence[SlotListener], new_tokens: int = 0) -> list[int]:
        """Start a request, one listener per sequence. Returns the slots; fills them into `submit`.

        `new_tokens` of the prompt are expected to be computed, the rest to be found in the worker's cache.
        """
        for listener in listeners:  # first of all: one that raises must not keep its slot
            listener.weights(self.weight_version)
        slots = [self._slots.take(listener) for listener in listeners]
        self.workload.on_submit(slots, new_tokens)
        self.recent_starts.on_submit(slots, submit)
        submit.slots[:] = slots
        self._commands.put_nowait(pb.SessionRequest(submit=submit))
        return slots

    def abort(self, slots: Sequence[int]) -> None:
        """Give slots up: their listeners hear nothing more, the worker stops computing them."""
        for slot in slots:
            self._slots.give_up(slot)
        self._commands.put_nowait(pb.SessionRequest(abort=pb.Abort(slots=slots)))

    def listens(self, slot: int, listener: SlotListener) -> bool:
        """Return whether the slot still belongs to this listener."""
        listeners = self._slots.listeners
        return slot < len(listeners) and listeners[slot] is listener

    # Lifecycle.

    def retire(self) -> None:
        """Take no more requests, whatever the worker says."""
        self._retired = True
        self._settle()

    def readmit(self) -> None:
        """Take requests again."""
        self._retired = False
        self._settle()

    async def run(self) -> None:
        """Connect, and connect again whenever the session ends, until cancelled."""
        retry_s = _FIRST_RETRY_S
        while True:
            connected = False
            try:
                connected = await self._run_once()
                how = "gone, as it announced" if self.worker_drains else f"lost ({self._liveness.loss_reason})"
                log.warning("worker %s is %s: %s", self.address, how, self.last_error)
            except TokenwireError as error:
                self.lives = False
                self._note_failure(error.message)
            except Exception as error:
                self.lives = False
                log.exception("session with %s broke", self.address)
                self.last_error = str(error)
            retry_s = self._pause() if connected else min(retry_s * 2, _LAST_RETRY_S)
            await asyncio.sleep(retry_s * random.uniform(0.8, 1.2))  # noqa: S311 (spreads retries, no secret)

    def _pause(self) -> float:
        """Return how long to wait after a session before the next one."""
        if self.worker_drains:
            return _FIRST_RETRY_S
        self.losses[self._liveness.loss_reason] += 1
        return self.breaker.lost(self._liveness.loss_reason is LossReason.STALLED)

    async def _run_once(self) -> bool:
        """Run one session to its end; returns whether it got as far as being ready."""
        self._commands = asyncio.Queue()
        transport = self._transport = self._open_transport(self.address, self._send_commands(self._commands))
        try:
            return await self._serve(transport)
        finally:
            was_connected = self.state is not SessionState.CONNECTING
            self.state = SessionState.CONNECTING
            if was_connected:
                # One that hangs may well say welcome again.
                self.lives = False if self._liveness.loss_reason is LossReason.STALLED else None
            self.ready.clear()
            self._lose_slots()
            self._transport = None
            if was_connected:
                self._listener.on_session_change(self)
            await transport.close()

    async def _serve(self, transport: WorkerTransport) -> bool:
        event = await transport.read()
        if event is None or event.WhichOneof("event") != "welcome":
            raise ProtocolError("the worker did not begin with a welcome")
        await self._welcomed(event.welcome, transport)
        try:
            await (self._listen_closely(transport) if event.welcome.heartbeat_ms else self._listen(transport))
            self.last_error = "closed by the worker"
        except ProtocolError as error:
            self._liveness.loss_reason, self.last_error = LossReason.PROTOCOL_ERROR, error.message
        except TokenwireError as error:
            self.last_error = error.message
        except Exception as error:
            log.exception("session with %s broke", self.address)
            self._liveness.loss_reason = LossReason.PROTOCOL_ERROR
            self.last_error = f"its session failed: {error}"
        return True

    async def _listen(self, transport: WorkerTransport) -> None:
        """Handle events until the worker closes."""
        liveness = self._liveness
        while (event := await transport.read()) is not None:
            liveness.last_event_at = time.monotonic()
            self._handle(event)

    async def _listen_closely(self, transport: WorkerTransport) -> None:
        """Do so until the worker closes, or is silent for too long: then raises Unavailable."""
        watching = asyncio.create_task(self._liveness.watch())
        try:
            async with asyncio.timeout(None) as silence:
                watching.add_done_callback(partial(_end_waiting, silence))
                await self._listen(transport)
        except TimeoutError:
            raise Unavailable(watching.result()) from None
        finally:
            watching.cancel()

    async def _welcomed(self, welcome: pb.Welcome, transport: WorkerTransport) -> None:
        protocol.check_peer(welcome.protocol, f"worker {self.address}")
        if not welcome.model.names:
            raise ProtocolError("the worker's welcome names no model")
        await self._prepare(welcome.model, transport.fetch_tokenizer)
        self.model, self.name = welcome.model, welcome.model.names[0]
        self.weight_version = welcome.weight_version
        self.serving, self.instance_id = welcome.serving, welcome.instance_id
        self.capabilities = welcome.capabilities
        self.workload.begin(welcome.model.max_num_seqs, welcome.load)
        self._stats = self._slots.discard.stats = self._stats_by_model.setdefault(self.name, SessionStats())
        # Plain vLLM servers have neither heartbeats nor steps.
        self._frame_at = time.monotonic() if welcome.heartbeat_ms else None
        self.lives = True
        self._liveness.on_connected()
        self.state, self.worker_drains, self.engine_died = SessionState.READY, welcome.draining, False
        self.recent_starts.take_all()
        self._settle()
        log.info("worker %s: %s on %s, ready", self.address, self.name, welcome.model.engine)

    async def _send_commands(self, commands: "asyncio.Queue[pb.SessionRequest]") -> AsyncIterator[pb.SessionRequest]:
        hello = pb.Hello(protocol=protocol.version(), coordinator_id=self._coordinator_id)
        yield pb.SessionRequest(hello=hello)
        while True:
            yield await commands.get()

    # Events.

    def _handle(self, event: pb.SessionResponse) -> None:
        match event.WhichOneof("event"):
            case "frame":
                self._take(event.frame)
            case "refusal":
                self._refused(event.refusal)
            case "draining":
                log.info("worker %s drains", self.address)
                self.worker_drains = True
                self._settle()
            case "serving":
                self.on_serving_state(event.serving)
            case "heartbeat":
                self.workload.on_load(event.heartbeat.load)
                stalled = self._liveness.stalled
                self._liveness.check_heartbeat(event.heartbeat, partial(self._listener.is_covered, self))
                if stalled != self._liveness.stalled:
                    self._settle()
            case "cache":
                self._listener.on_cache_change(self, event.cache)
            case "welcome":
                raise ProtocolError("the worker sent a second welcome")

    def _settle(self) -> None:
        """Find the state of a connected session, and tell of it."""
        if self.state is SessionState.CONNECTING:
            return
        if self._retired or self.worker_drains:
            self.state = SessionState.DRAINING
        else:
            self.state = SessionState.STALLED if self._liveness.stalled else SessionState.READY
        if self.state is SessionState.READY:
            self.ready.set()
        else:
            self.ready.clear()
        self._listener.on_session_change(self)

    def _refused(self, refusal: pb.Refusal) -> None:
        if not refusal.slots:
            raise ProtocolError("the worker sent a refusal without slots")
        error = from_refusal(refusal)
        self.recent_starts.on_refusal(refusal.slots)
        for slot in refusal.slots:
            self.workload.on_prefilled(slot)
            fail_listener(self._slots.release(slot), error)
        self._listener.on_slots_freed()

    def _take(self, frame: pb.StepFrame) -> None:
        if frame.finishes and not self.worker_drains and any(finish.handed_back for finish in frame.finishes):
            # Whatever goes on elsewhere must not come back here.
            self.worker_drains = True
            self.engine_died = any(finish.reason == pb.FINISH_REASON_ERROR for finish in frame.finishes)
            self._settle()
        self.recent_starts.on_frame(frame)
        has_new_weights = frame.weight_version != self.weight_version
        self.weight_version = frame.weight_version
        self.workload.on_frame(frame)
        if self._liveness.stalled and frame.token_ids:
            self._liveness.on_step()
            self._settle()
        if self._frame_at is not None and frame.slots:
            self._count_gap(self._frame_at, frame)
        if self.breaker.half_open and frame.token_ids:
            self.breaker.record_success()
            self._listener.on_slots_freed()
        unwanted = dispatch(frame, self._slots, has_new_weights)
        if unwanted:
            self.abort(unwanted)
        if frame.finishes:
            self._listener.on_slots_freed()

    def _count_gap(self, before: float, frame: pb.StepFrame) -> None:
        self._frame_at = now = self._liveness.last_event_at
        waited = len(frame.slots) - len(frame.prefills)  # the others have their first tokens
        if waited > 0:
            self._stats.add_gap(now - before, waited)

    def _lose_slots(self) -> None:
        error = WorkerLost(f"The worker that generated this reply is gone ({self.last_error}).", retry_after_s=1)
        for listener in self._slots.release_all():
            fail_listener(listener, error)

    def _note_failure(self, message: str) -> None:
        if message != self.last_error:
            log.log(logging.WARNING if self.model else logging.INFO, "worker %s: %s", self.address, message)
        self.last_error = message


def _end_waiting(silence: asyncio.Timeout, watching: "asyncio.Task[str]") -> None:
    if not watching.cancelled():
        silence.reschedule(0)
