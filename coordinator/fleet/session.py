"""The coordinator's session with one worker: connects and reconnects, submits and aborts, dispatches events.

One class beyond the usual length, because every event may change the state that commands and reconnecting depend on.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from tokenwire.coordinator.fleet.announcement_limits import check_state, check_welcome
from tokenwire.coordinator.fleet.capabilities import lacks_of
from tokenwire.coordinator.fleet.circuit_breaker import CircuitBreaker
from tokenwire.coordinator.fleet.death_evidence import DeathEvidence
from tokenwire.coordinator.fleet.frame_parts import is_large, parts_of
from tokenwire.coordinator.fleet.frames import check_large, check_sizes, dispatch
from tokenwire.coordinator.fleet.liveness import LivenessMonitor, LivenessSettings, LossReason
from tokenwire.coordinator.fleet.media_delivery import MediaDelivery
from tokenwire.coordinator.fleet.outliers import MOST_ERRORS, EjectionReason, OutlierSettings
from tokenwire.coordinator.fleet.recent_starts import RecentStarts
from tokenwire.coordinator.fleet.session_listener import SessionListener, SessionState
from tokenwire.coordinator.fleet.session_stats import SessionStats, StatsByModel, TokenGaps
from tokenwire.coordinator.fleet.slots import SlotListener, SlotTable, fail_listener
from tokenwire.coordinator.fleet.starvation import Starvation, StarvationWatch
from tokenwire.coordinator.fleet.state_pace import StatePace
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.coordinator.fleet.transport.base import CommandQueue, OpenTransport, WorkerTransport
from tokenwire.coordinator.fleet.transport.grpc import GrpcTransport
from tokenwire.coordinator.fleet.weight_labels import WeightLabels
from tokenwire.coordinator.fleet.weight_versions import version_epoch_of
from tokenwire.coordinator.fleet.workload import Workload
from tokenwire.errors import (
    ProtocolError,
    RevisionLost,
    TokenwireError,
    Unavailable,
    WorkerDraining,
    WorkerLost,
    from_refusal,
)
from tokenwire.peer_auth.client import ChannelFactory
from tokenwire.protocol.model_revision import ModelRevision
from tokenwire.protocol.version import check_peer, protocol_version, takes_packed_ids
from tokenwire.v1 import control_pb2_grpc
from tokenwire.v1 import inference_pb2 as pb

log = logging.getLogger(__name__)

FetchFiles = Callable[[], Awaitable[dict[str, bytes]]]
Prepare = Callable[[pb.Model, FetchFiles], Awaitable[None]]
"""Called with a worker's model, and a way to fetch its tokenizer files, before the worker gets requests."""
_MOST_ERROR_CHARS = 64 * 1024


class WorkerSession:
    """The session with one worker, reopened whenever it ends while `run` runs."""

    state = SessionState.CONNECTING
    instance_id = ""
    """Identifies the worker's process; empty before its first welcome."""
    model: pb.Model | None = None
    model_name = ""
    """First name of the model that the worker serves; empty before its first welcome."""
    version_epoch = 0
    """The operation that set the label of its weights, in its serving state; 0: it started with it."""
    alive: bool | None = False
    """Whether the worker's process runs; None after a loss, until the next attempt to connect shows it."""
    worker_drains = False
    """Whether the worker has announced its shutdown."""
    engine_died = False
    """Whether it shuts down because its engine died."""
    last_error = "not connected yet"
    is_refused = False
    """Whether the last attempt to connect ended with an announcement that no worker may make."""
    starved = 0
    """Sequences that it starved since it is connected, or was ejected for it."""
    failed = 0
    """Requests that it failed and others served, less those that it served, since it is connected or was ejected."""
    witnesses: Mapping[str, int] = MappingProxyType({})
    """How many of these each worker served, by address, and how many its own engine failed."""
    unsupported: frozenset[str] = frozenset()
    """What of a request its engine cannot serve."""
    ejected = ""
    """Why it gets no new requests though it could; empty while it does. Set by the pool's detector of outliers."""
    withheld = ""
    """Why its revision is to get no new requests where another one serves; empty while it may."""
    on_probation = False
    """Whether it was withheld, and has served no request since: its revision gets one at a time."""
    errors = 0
    """Requests that it ended with an error, less those that it served, since it is connected."""
    has_served = False
    """Whether it served a request, or its first tokens, since it is connected."""
    follows_operations = True
    """Whether it is known here which weights the worker is to have, whatever it announces."""
    gaps: TokenGaps | None = None
    """The time between its tokens; None of plain vLLM servers, whose frames are not steps."""
    _retired = False
    _ending: asyncio.Timeout | None = None
    _violation = ProtocolError("")
    _transport: WorkerTransport | None = None

    def __init__(
        self,
        address: str,
        coordinator_id: str,
        prepare: Prepare,
        listener: "SessionListener[WorkerSession] | None" = None,
        open_transport: OpenTransport | None = None,
        liveness: LivenessSettings | None = None,
        stats_by_model: StatsByModel | None = None,
    ) -> None:
        """`stats_by_model` holds the statistics that this session adds to."""
        self.address = address
        self.serving = pb.ServingState()  # as announced last
        self.revision = ModelRevision()
        """What it serves, in that state."""
        self.capabilities = pb.EngineCapabilities()
        self._packs_ids = False
        """How its engine samples."""
        self._coordinator_id = coordinator_id
        self._prepare = prepare
        self._listener = listener or SessionListener()
        self._open_transport = open_transport or partial(GrpcTransport, ChannelFactory())
        self._slots = SlotTable()
        self.workload = Workload(self._slots)
        self._starvation = StarvationWatch(self._slots, self.workload)
        self._stats_by_model = {} if stats_by_model is None else stats_by_model
        self.recent_starts = RecentStarts(self._on_survived)
        """Requests that the worker has just started."""
        self._evidence = DeathEvidence()
        self.breaker = CircuitBreaker()
        self.losses = dict.fromkeys(LossReason, 0)
        """Unannounced losses of the worker, by reason."""
        self.ejections = dict.fromkeys(EjectionReason, 0)
        """How often it was ejected, by reason."""
        self._liveness = LivenessMonitor(liveness or LivenessSettings(), worker=address)
        self.labels = WeightLabels()
        self._states = StatePace(self.on_serving_state)
        self._commands = CommandQueue()
        self.media = MediaDelivery(self._slots, lambda command: self._commands.put(command), self._end_slots, self.end)
        """What the worker has of the media of requests."""

    @property
    def generates(self) -> bool:
        """Whether its engine may run: it is ready, and neither paused nor asleep."""
        return self.state is SessionState.READY and not (self.serving.paused or self.serving.sleeping)

    @property
    def takes_media(self) -> bool:
        """Whether prompts may have media."""
        return self.model is not None and bool(self.model.media)

    @property
    def unproven_at(self) -> str:
        """The worker's address if its death says more of itself than of requests; else empty."""
        return "" if self._evidence.counts else self.address

    @property
    def control(self) -> control_pb2_grpc.ControlStub | None:
        """The stub for the worker's control calls; None while it is not connected."""
        connected = self._transport is not None and self.state is not SessionState.CONNECTING
        return self._transport.control if self._transport is not None and connected else None

    @property
    def open_slots(self) -> int:
        """Slots without their terminal event."""
        return self._slots.open

    @property
    def awaited_slots(self) -> int:
        """Slots without their terminal event that are not aborted."""
        return self._slots.open - self._slots.given_up

    def on_serving_state(self, serving: pb.ServingState) -> None:
        """Update the worker's serving state, from an event or a response, unless a newer one is known.

        One that no worker may announce ends the session.
        """
        if serving.revision > self.serving.revision and self.model is not None:
            try:
                check_state(serving)
            except ProtocolError as error:
                self.end(error)
                return
            self.serving, self.revision = serving, self._revision_of(self.model, serving)
            self.version_epoch = version_epoch_of(serving)
            self._listener.on_session_change(self)

    def _revision_of(self, model: pb.Model, serving: pb.ServingState) -> ModelRevision:
        return ModelRevision.of(model, serving, follows_operations=self.follows_operations)

    # Commands.

    def submit(
        self, submission: Submission, listeners: Sequence[SlotListener], new_tokens: int = 0, tenant: str = ""
    ) -> list[int]:
        """Start a request, one listener per sequence; return the slots.

        `new_tokens` of the prompt are expected to be computed, the rest to be in the worker's prefix cache. `tenant`:
        empty where there is only one.
        """
        for listener in listeners:  # before taking slots, because a listener may raise
            listener.weights(self.labels.current)
        most_tokens = self._most_tokens(submission)
        scored = submission.has_rows
        slots = [self._slots.take(listener, most_tokens, scored) for listener in listeners]
        if submission.pooled is None:
            self.workload.on_submit(slots, new_tokens, tenant)
        else:
            start = submission.start
            self.workload.on_pool(slots, submission.pooled.lengths[start : start + len(slots)], tenant)
        self.recent_starts.on_submit(slots, submission)
        if submission.sampled:
            self._record(submission, slots)
        if submission.media is None:
            self._commands.put(submission.message(slots, self._packs_ids))
        else:
            self.media.submit(submission, slots)
        return slots

    def keep_places(self, slots: Sequence[int], tenant: str) -> None:
        """Count slots as places that a tenant keeps, until they end."""
        self._slots.kept.add([slot for slot in slots if self._slots.is_open(slot)], tenant)

    def room_to_keep(self, tenant: str, processes: int = 1) -> int:
        """Return how many more places a tenant may keep here, of this process's part of them; zero or less: none."""
        return self._slots.kept.room(tenant, self.workload.capacity // processes)

    def _record(self, submission: Submission, slots: Sequence[int]) -> None:
        """Record what the worker samples from now on."""
        submission.by_rows = not self.capabilities.sampled_logprobs
        by_rows, prompt_tokens = submission.by_rows or submission.has_rows, len(submission.prompt_token_ids)
        for slot, sampled in zip(slots, submission.sampled[submission.start :], strict=False):
            self._slots.runs.begin(slot, sampled.begin(prompt_tokens, by_rows))

    def _most_tokens(self, submission: Submission) -> int:
        """Return how many tokens each sequence of a request gets at most."""
        if submission.max_tokens is not None:
            return submission.max_tokens
        params, model = submission.sampling_params, self.model
        return params.max_tokens if params.HasField("max_tokens") or model is None else model.max_model_len

    def abort(self, slots: Sequence[int]) -> None:
        """Abort sequences: their listeners are no longer called, and the worker stops computing them."""
        for slot in slots:
            self._slots.give_up(slot)
        self._commands.put(pb.SessionRequest(abort=pb.Abort(slots=slots)))

    def listens(self, slot: int, listener: SlotListener) -> bool:
        """Return whether a slot still belongs to this listener."""
        listeners = self._slots.listeners
        return slot < len(listeners) and listeners[slot] is listener

    def move_starved(
        self,
        settings: OutlierSettings,
        elapsed_s: float,
        is_held: bool,
        can_go_on: Callable[[Starvation], bool],
    ) -> None:
        """Fail the sequences that the worker starves, so that they go on elsewhere; called every `elapsed_s`.

        `is_held`: an operation ordered that it makes no tokens. Where the worker is not clearly to blame, its sequences
        go only where they `can_go_on`.
        """
        if self.gaps is None or not self.open_slots or is_held:
            return
        for starved in self._starvation.check(settings, elapsed_s, self.recent_starts.prompt_lengths()):
            message = f"The worker sent no token of this reply for {starved.waited_s:.0f} s."
            if self.on_probation and starved.slot not in self._slots.begun:
                message += f" It is the last one of revision {self.revision}, which is to get no new requests."
                error: TokenwireError = RevisionLost(message, retry_after_s=1)
            elif starved.cause is Starvation.OTHERS_ARE_SERVED:
                error = Unavailable(message, retry_after_s=1)
                self.starved += 1
            elif can_go_on(starved.cause):
                error = WorkerDraining(message, retry_after_s=1)  # the request is not to blame, nor surely the worker
            else:
                continue
            log.warning("worker %s starves slot %d: %s", self.address, starved.slot, message)
            listener = self._slots.listeners[starved.slot]
            self.abort([starved.slot])
            fail_listener(listener, error)

    @property
    def is_idle_or_advances(self) -> bool:
        """Whether it has nothing to do, or has lately made steps."""
        return not self.awaited_slots or self._starvation.advances

    # Lifecycle.

    def end(self, violation: ProtocolError) -> None:
        """End the session, once it is ready, because of what the worker answered to a call of its own."""
        ending, self._ending = self._ending, None
        if ending is not None:
            self._violation = violation
            ending.reschedule(0)

    def retire(self) -> None:
        """Take no more requests, whatever the worker's state."""
        self._retired = True
        self._update_state()

    def readmit(self) -> None:
        """Take requests again."""
        self._retired = False
        self._update_state()

    async def run(self) -> None:
        """Connect, and reconnect whenever the session ends, until cancelled."""
        while True:
            try:
                await self._run_once()
                self._record_end()
            except TokenwireError as error:
                self.is_refused = isinstance(error, ProtocolError)
                self._record_failure(error.message)
            except Exception as error:
                log.exception("session with %s failed", self.address)
                self._record_failure(str(error), logged=True)
            await asyncio.sleep(self.breaker.backoff_s())

    def _record_end(self) -> None:
        """Record the end of a session that was ready."""
        reason = self._liveness.loss_reason
        how = "drained" if self.worker_drains else f"lost ({reason})"
        log.warning("worker %s %s: %s", self.address, how, self.last_error)
        if self.worker_drains:
            self.breaker.record_drain()
        else:
            self.losses[reason] += 1
            self.breaker.record_loss(reason is LossReason.STALLED)

    def _record_failure(self, message: str, logged: bool = False) -> None:
        """Record a session that did not become ready."""
        self.alive = False
        self.breaker.record_failure()
        if message != self.last_error and not logged:
            log.log(logging.WARNING if self.model else logging.INFO, "worker %s: %s", self.address, message)
        self.last_error = message

    async def _run_once(self) -> None:
        """Run one session to its end. Raises what kept it from becoming ready."""
        commands = self._commands = CommandQueue()
        hello = pb.Hello(protocol=protocol_version(), coordinator_id=self._coordinator_id)
        commands.put(pb.SessionRequest(hello=hello))
        transport = self._transport = self._open_transport(self.address, commands)
        try:
            await self._serve(transport)
        finally:
            was_connected = self.state is not SessionState.CONNECTING
            self.state = SessionState.CONNECTING
            if was_connected:
                # A worker with a hanging engine may well send a welcome again.
                self.alive = False if self._liveness.loss_reason is LossReason.STALLED else None
            if was_connected and not self.worker_drains:
                self._evidence.on_lost(self.recent_starts.submissions())
            error = WorkerLost(f"The worker that generated this reply was lost ({self.last_error}).", retry_after_s=1)
            for listener in self._slots.release_all():
                fail_listener(listener, error)
            self.media.close()
            self._states.close()
            self._transport = None
            if was_connected:
                self._listener.on_session_change(self)
            commands.close()
            await transport.close()

    async def _serve(self, transport: WorkerTransport) -> None:
        event = await transport.read()
        if event is None or event.WhichOneof("event") != "welcome":
            raise ProtocolError("the worker did not begin with a welcome")
        await self._on_welcome(event.welcome, transport)
        try:
            async with self._liveness.heartbeat_timeout(event.welcome.heartbeat_ms):
                await self._read_until_ended(transport)
            self.last_error = "closed by the worker"
        except ProtocolError as error:
            self._liveness.loss_reason, self.last_error = LossReason.PROTOCOL_ERROR, error.message
        except TokenwireError as error:
            self.last_error = error.message
        except Exception as error:
            log.exception("session with %s failed", self.address)
            self._liveness.loss_reason = LossReason.PROTOCOL_ERROR
            self.last_error = f"the session failed: {error}"

    async def _read_until_ended(self, transport: WorkerTransport) -> None:
        try:
            async with asyncio.timeout(None) as self._ending:
                await self._read_events(transport)
        except TimeoutError:
            raise self._violation from None
        finally:
            self._ending = None

    async def _read_events(self, transport: WorkerTransport) -> None:
        """Handle events until the worker closes the session."""
        liveness = self._liveness
        while (event := await transport.read()) is not None:
            liveness.last_event_at = time.monotonic()
            for part in self._on_event(event):
                await asyncio.sleep(0)  # others have their turn before each
                liveness.last_event_at = time.monotonic()
                self._dispatch(part)

    async def _on_welcome(self, welcome: pb.Welcome, transport: WorkerTransport) -> None:
        check_peer(welcome.protocol, f"worker {self.address}")
        check_welcome(welcome)
        await self._prepare(welcome.model, transport.fetch_tokenizer)
        self.model, self.model_name, self.is_refused = welcome.model, welcome.model.names[0], False
        self.labels.begin(welcome.weight_version)
        self.serving, self.instance_id = welcome.serving, welcome.instance_id
        self.revision = self._revision_of(welcome.model, welcome.serving)
        self.version_epoch = version_epoch_of(welcome.serving)
        self.capabilities = welcome.capabilities
        self._packs_ids = takes_packed_ids(welcome.protocol)
        self.unsupported = lacks_of(welcome)
        self.workload.begin(welcome.model.max_num_seqs, welcome.load, welcome.model.HasField("pooling"))
        stats = self._slots.discard.stats = self._stats_by_model.setdefault(self.model_name, SessionStats())
        self.gaps = TokenGaps(stats, time.monotonic()) if transport.sends_steps else None
        self._starvation.begin()
        self.alive, self.starved, self.failed, self.witnesses = True, 0, 0, Counter()
        self.errors, self.has_served = 0, False
        self._evidence.on_connected()
        self._liveness.on_connected()
        self.media.begin(transport)
        self.state, self.worker_drains, self.engine_died = SessionState.READY, welcome.draining, False
        self.recent_starts.take_all()
        self._update_state()
        serves = f"{self.model_name} (revision {self.revision})"
        log.info("worker %s: %s on %s, ready", self.address, serves, welcome.model.engine)

    # Events.

    def _on_event(self, event: pb.SessionResponse) -> Iterable[pb.StepFrame]:
        """Handle an event; return what is left to dispatch of a large frame."""
        match event.WhichOneof("event"):
            case "frame":
                return self._on_frame(event.frame)
            case "refusal":
                self._on_refusal(event.refusal)
            case "draining":
                log.info("worker %s is draining", self.address)
                self.worker_drains = True
                self._update_state()
            case "serving":
                self._states.put(event.serving)
            case "heartbeat":
                self.workload.on_load(event.heartbeat.load)
                self._starvation.steps = event.heartbeat.steps
                self._starvation.step_allowance_s = event.heartbeat.allowance_ms / 1000
                stalled = self._liveness.stalled
                self._liveness.check_heartbeat(event.heartbeat, partial(self._listener.is_covered, self))
                if stalled != self._liveness.stalled:
                    self._update_state()
            case "cache":
                self._listener.on_kv_events(self, event.cache)
            case "welcome":
                raise ProtocolError("the worker sent a second welcome")
        return ()

    def _update_state(self) -> None:
        """Set the state of a connected session, and notify the listener."""
        if self.state is SessionState.CONNECTING:
            return
        if self._retired or self.worker_drains:
            self.state = SessionState.DRAINING
        else:
            self.state = SessionState.STALLED if self._liveness.stalled else SessionState.READY
        self._listener.on_session_change(self)

    def _count_ends(self, finishes: Sequence[pb.Finish]) -> None:
        """Count requests that end with an error, each once for all of its sequences, and sequences that it served.

        Raises ProtocolError for an error without end: others may try what it fails, and each keeps its own.
        """
        failed, served = set(), 0
        for finish in finishes:
            if finish.handed_back or not self._slots.is_awaited(finish.slot):
                continue
            if finish.reason == pb.FINISH_REASON_ERROR:
                failed.add(id(self.recent_starts.submission_of(finish.slot)))
                if len(finish.error_message) > _MOST_ERROR_CHARS:
                    raise ProtocolError(f"the worker sent an error of {len(finish.error_message)} characters")
            elif finish.reason != pb.FINISH_REASON_ABORT:
                served += 1
        self.errors = min(self.errors + len(failed), 2 * MOST_ERRORS)
        if served and not failed:
            self._count_served(served)

    def _count_served(self, sequences: int) -> None:
        self.errors = max(0, self.errors - sequences)
        self.has_served, self.on_probation, self.withheld = True, False, ""

    def count_failed(self, witnesses: Iterable[str]) -> None:
        """Count a request that it failed, by the addresses of those that tell."""
        self.failed += 1
        self.witnesses = Counter(self.witnesses) + Counter(witnesses)

    def _on_survived(self, submission: Submission) -> None:
        self._evidence.on_served()
        self.has_served = True
        self.failed = max(0, self.failed - 1)
        if not self.failed:
            self.witnesses = Counter()
        self._listener.on_survived(self, submission)

    def _on_refusal(self, refusal: pb.Refusal) -> None:
        if not refusal.slots:
            raise ProtocolError("the worker sent a refusal without slots")
        if len(refusal.slots) > self._slots.open or not all(map(self._slots.is_open, refusal.slots)):
            raise ProtocolError(f"the worker refused {len(refusal.slots)} slots: some are not open")
        submission = self.recent_starts.submission_of(refusal.slots[0])
        if any(self.recent_starts.submission_of(slot) is not submission for slot in refusal.slots):
            raise ProtocolError("the worker refused slots of several requests as one")
        if not self.media.submit_again(submission, refusal):
            self._end_slots(refusal.slots, from_refusal(refusal))

    def _end_slots(self, slots: Sequence[int], error: TokenwireError) -> None:
        """End slots of a request that did not start."""
        self.recent_starts.on_refusal(slots)
        for slot in slots:
            self.workload.on_prefilled(slot)
            fail_listener(self._slots.release(slot), error)
        self._listener.on_slots_freed()

    def _on_frame(self, frame: pb.StepFrame) -> Iterable[pb.StepFrame]:
        check_sizes(frame, self._slots)
        if frame.finishes and not self.worker_drains and True in [finish.handed_back for finish in frame.finishes]:
            # The sequences handed back must not be resumed here.
            self.worker_drains = True
            self.engine_died = any(finish.reason == pb.FINISH_REASON_ERROR for finish in frame.finishes)
            if self.engine_died:
                self._evidence.on_lost(self.recent_starts.submissions())
            self._update_state()
        if frame.finishes:
            self._count_ends(frame.finishes)
        self.recent_starts.on_frame(frame)
        has_new_weights = frame.weight_version != self.labels.current
        if has_new_weights:
            self.labels.change(frame.weight_version)
        self.workload.on_frame(frame)
        if self._liveness.stalled and _has_output(frame):
            self._liveness.on_step()
            self._update_state()
        if self.gaps is not None and frame.token_ids:
            self.gaps.on_frame(frame, len(self._slots.begun), self._liveness.last_event_at)
        if self.breaker.half_open and _has_output(frame):
            self.breaker.record_success()
            self._listener.on_slots_freed()
        if not is_large(frame):
            self._dispatch(frame, has_new_weights)
            return ()
        check_large(frame, self._slots)
        parts = parts_of(frame)
        self._dispatch(next(parts), has_new_weights)
        return parts

    def _dispatch(self, frame: pb.StepFrame, has_new_weights: bool = False) -> None:
        stopped = dispatch(frame, self._slots, has_new_weights)
        if stopped:
            self._count_served(len(stopped))  # their listeners have all that they want
            self.abort(stopped)
        if frame.finishes or frame.prefills:  # or there is room for prompts
            self._listener.on_slots_freed()


def _has_output(frame: pb.StepFrame) -> bool:
    """Return whether a worker has computed something, and not only ended it."""
    return bool(frame.token_ids) or any(finish.HasField("pooled") for finish in frame.finishes)
