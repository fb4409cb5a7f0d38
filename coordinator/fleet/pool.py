"""The workers of this coordinator: adds and removes their sessions, and submits requests to one of them.

One class beyond the usual length, since all of it is about the same sessions.
"""

import asyncio
import contextlib
import logging
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from tokenwire.coordinator.fleet.capabilities import common_capabilities, needs_of, remedy_for
from tokenwire.coordinator.fleet.desired_state import DesiredStates
from tokenwire.coordinator.fleet.liveness import LivenessSettings
from tokenwire.coordinator.fleet.outliers import CHECK_INTERVAL_S, MOST_ERRORS, OutlierDetector, OutlierSettings
from tokenwire.coordinator.fleet.placed_request import PlacedRequest
from tokenwire.coordinator.fleet.pool_listener import PoolListener
from tokenwire.coordinator.fleet.reconciler import Reconciler
from tokenwire.coordinator.fleet.request_handle import NEW, Placement
from tokenwire.coordinator.fleet.routing import Router
from tokenwire.coordinator.fleet.session import Prepare, WorkerSession
from tokenwire.coordinator.fleet.session_listener import SessionListener, SessionState
from tokenwire.coordinator.fleet.session_stats import StatsByModel
from tokenwire.coordinator.fleet.slots import SlotListener
from tokenwire.coordinator.fleet.starvation import Starvation
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.coordinator.fleet.transport.base import CommandQueue, OpenTransport, WorkerTransport
from tokenwire.coordinator.fleet.transport.grpc import GrpcTransport
from tokenwire.coordinator.fleet.transport.paced import FramePace, PacedTransport
from tokenwire.coordinator.fleet.transport.vllm_http.settings import VllmHttpSettings
from tokenwire.coordinator.fleet.transport.vllm_http.transport import VllmHttpTransport
from tokenwire.coordinator.fleet.transport.vllm_http.unsent_media import UnsentMedia
from tokenwire.errors import InvalidRequest, RevisionLost
from tokenwire.peer_auth.client import ChannelFactory
from tokenwire.process.for_each import call_each, for_each
from tokenwire.protocol.model_revision import ModelRevision
from tokenwire.protocol.weight_limits import WeightLimits
from tokenwire.v1 import inference_pb2 as pb

log = logging.getLogger(__name__)

_PLAIN_SERVERS = VllmHttpSettings()

_IDLE_CHECK_S = 0.1
"""Polling interval for the last slot of a worker to be removed: a callback would cost something in every frame."""
_ABORTED_S = 2.0
"""How long a worker to be removed may take to end aborted slots; the end of its session aborts them, too."""
_KEYS_CHECK_S = 5.0  # a change of the keys of operations may set workers aside, or end that


@dataclass(slots=True)
class _Member:
    session: WorkerSession
    running: asyncio.Task[None]
    removal: asyncio.Task[None] | None = None
    """Removes a worker that is no longer listed, once its last slot has ended."""


class WorkerPool(SessionListener[WorkerSession]):
    """Sessions with workers that may come and go. Workers that have drifted are reconciled."""

    _outlier_check: asyncio.TimerHandle | None = None
    _checking_keys: asyncio.Task[None] | None = None

    def __init__(
        self,
        coordinator_id: str,
        prepare: Prepare,
        desired: DesiredStates | None = None,
        *,
        channels: ChannelFactory | None = None,
        router: Router | None = None,
        liveness: LivenessSettings | None = None,
        vllm_http: VllmHttpSettings = _PLAIN_SERVERS,
        outliers: "OutlierDetector[WorkerSession] | None" = None,
        pace: FramePace | None = None,
        processes: int = 1,
    ) -> None:
        """`processes` is how many of this coordinator use the same workers."""
        self._processes = processes
        self.stats_by_model: StatsByModel = {}
        self.sequences_by_revision: Counter[tuple[str, str]] = Counter()
        """How many sequences were sent to workers, by model and revision, of those that a worker has."""
        self.pace = pace or FramePace()
        self._revisions: dict[tuple[str, str], None] = {}
        """Models and keys of their revisions, by when they were first seen: a worker may come back with another one."""
        self._coordinator_id = coordinator_id
        self._prepare = prepare
        self._desired = desired or DesiredStates()
        self._reconciler = Reconciler(self._desired)
        self._members: dict[str, _Member] = {}
        """By address, in order of arrival."""
        self._candidates: dict[tuple[str, int, str], list[WorkerSession]] = {}
        """Sessions that can take requests, by model, adapter and revision's key: cached until a session changes."""
        self._channels = channels or ChannelFactory()
        self._open_vllm_http = partial(VllmHttpTransport, vllm_http, UnsentMedia(vllm_http.key))
        self._router = router or Router()
        self._liveness = liveness
        self._outliers = outliers or OutlierDetector(OutlierSettings())
        self._changed = asyncio.Event()
        self._listeners: list[PoolListener] = []
        self._on_capacity: list[Callable[[], object]] = []
        self._on_survived: list[Callable[[str, Submission], object]] = []
        """Those that have a use for what is reported of every request."""

    @property
    def sessions(self) -> Sequence[WorkerSession]:
        """All current sessions, connected or not, including those to be removed."""
        return [member.session for member in self._members.values()]

    @property
    def open_slots(self) -> int:
        """Slots without their terminal event, in all sessions."""
        return sum(session.open_slots for session in self.sessions)

    def update(self, addresses: Iterable[str]) -> None:
        """Connect to new workers, and remove those that are no longer listed.

        A worker to be removed gets no new requests; its session closes when its last slot has ended.
        """
        if self._checking_keys is None:
            self._checking_keys = asyncio.create_task(self._check_keys())
        if self._outlier_check is None:
            self._schedule_outlier_check()
        listed = dict.fromkeys(addresses)
        for address in listed:
            member = self._members.get(address)
            if member is None:
                self._add(address)
            elif member.removal is not None:
                member.removal.cancel()
                member.removal = None
                member.session.readmit()
        for address, member in self._members.items():
            if address not in listed and member.removal is None:
                member.session.retire()
                member.removal = asyncio.create_task(self._remove_when_idle(member))

    async def stop(self) -> None:
        """Close all sessions; workers abort their requests."""
        if self._outlier_check is not None:
            self._outlier_check.cancel()
        members = list(self._members.values())
        tasks = [member.running for member in members]
        if self._checking_keys is not None:
            tasks.append(self._checking_keys)
        self._members.clear()
        self._candidates.clear()
        for member in members:
            if member.removal is not None:
                member.removal.cancel()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._reconciler.stop()

    async def wait_ready(self) -> None:
        """Wait until a worker takes requests."""
        while not self.is_ready():
            self._changed.clear()
            await self._changed.wait()

    def is_ready(self) -> bool:
        """Return whether any worker takes requests."""
        return any(session.state is SessionState.READY and not self.out_of_sync(session) for session in self.sessions)

    def serves(self, address: str) -> bool:
        """Return whether the session with the worker at an address is ready, in sync or not."""
        member = self._members.get(address)
        return member is not None and member.session.state is SessionState.READY

    def out_of_sync(self, session: WorkerSession, adapter_id: int = 0) -> str:
        """Return why a connected worker gets no new requests (for an adapter); empty when it is in sync."""
        out_of_sync = self._desired.out_of_sync(session.model_name, session.serving, adapter_id)
        error = self._reconciler.reconcile_error(session)
        return f"{out_of_sync} ({error})" if out_of_sync and error else out_of_sync

    def set_aside(self, session: WorkerSession) -> str:
        """Return why a worker gets neither requests nor operations; empty if it does."""
        return self._desired.set_aside(session.model_name, session.serving)

    def reconcile_error(self, session: WorkerSession) -> str:
        """Return the last error of reconciling a worker; empty without one."""
        return self._reconciler.reconcile_error(session)

    def is_alive(self, instance_id: str) -> bool | None:
        """Return whether a worker's process still runs; None while unknown, after its session was lost."""
        return next((session.alive for session in self.sessions if session.instance_id == instance_id), False)

    def subscribe(self, listener: PoolListener) -> None:
        """Add a listener; the error of one affects no other."""
        self._listeners.append(listener)
        if type(listener).on_capacity is not PoolListener.on_capacity:
            self._on_capacity.append(listener.on_capacity)
        if type(listener).on_worker_survived is not PoolListener.on_worker_survived:
            self._on_survived.append(listener.on_worker_survived)

    def free_capacity(
        self, model: str, adapter_id: int = 0, revision: ModelRevision | None = None, seeded_noise: str = ""
    ) -> int:
        """Return the free capacity of a model's workers (of a revision, with a noise), in sequences."""
        candidates = self._candidates_for(model, adapter_id, revision)
        return sum(max(0, _free_capacity(each)) for each in candidates if _draws(each, seeded_noise))

    def plausible_capacity(self, model: str, revision: ModelRevision) -> int:
        """Return the free capacity of a revision's workers, none of them more than twice what its siblings run.

        One that was withheld from them gets one request at a time until it has served one.
        Workers announce what they run, and get requests of other revisions in proportion to it.
        """
        found = self._candidates_for(model, 0, revision)
        if self.is_withheld(model, revision):
            return 1 if any(not each.withheld and not each.open_slots for each in found) else 0
        most = 2 * statistics.median_low(
            [each.workload.capacity for each in self._candidates_for(model, 0, None)] or [0]
        )
        return sum(max(0, min(_free_capacity(session), most)) for session in found)

    def is_withheld(self, model: str, revision: ModelRevision) -> bool:
        """Return whether all workers of a revision are withheld from new requests, or have served none since."""
        found = self._candidates_for(model, 0, revision)
        doubted = all(each.on_probation or each.breaker.half_open for each in found)
        return doubted and any(each.on_probation for each in found)

    def capabilities(
        self, model: str, adapter_id: int = 0, revision: ModelRevision | None = None, seeded_noise: str = ""
    ) -> pb.EngineCapabilities:
        """Return what all workers of a model (of a revision, with a noise) have that can take a request now; nothing
        without any."""
        candidates = self._candidates_for(model, adapter_id, revision)
        return common_capabilities(each.capabilities for each in candidates if _draws(each, seeded_noise))

    def draws(self, model: str, adapter_id: int, revision: ModelRevision | None, seeded_noise: str) -> bool:
        """Return whether a worker of a model (of a revision) that draws with a noise can take a request now."""
        return any(_draws(session, seeded_noise) for session in self._candidates_for(model, adapter_id, revision))

    def has_other(self, model: str, adapter_id: int, revision: ModelRevision | None, than: Collection[str]) -> bool:
        """Return whether a worker of a model (of a revision) can take a request now, other than at these addresses."""
        return any(each.address not in than for each in self._candidates_for(model, adapter_id, revision))

    def usual_queue(self, model: str) -> int:
        """Return how many sequences may wait for the workers of a model, including disconnected ones."""
        return sum(each.workload.usual_queue for each in self.sessions if each.model_name == model)

    def scarce_needs(self, model: str, submission: Submission) -> frozenset[str]:
        """Return what a request needs that not every listed worker of its model has."""
        lacking = frozenset[str]().union(*(each.unsupported for each in self.sessions if each.model_name == model))
        return lacking & needs_of(submission) if lacking else lacking

    def live_revisions(self, model: str) -> Sequence[ModelRevision]:
        """Return the revisions of the workers that take requests, the oldest one first."""
        found = dict.fromkeys(session.revision for session in self._candidates_for(model, 0, None))
        seen = {key: number for number, (name, key) in enumerate(self._revisions) if name == model}
        return sorted(found, key=lambda revision: seen.get(revision.key, len(seen)))

    def announced(self, model: str) -> Sequence[pb.Model]:
        """Return what each of the listed workers of a model announced last, connected or not."""
        return [each.model for each in self.sessions if each.model is not None and each.model_name == model]

    def unavailable_reason(self, model: str, adapter_id: int = 0, revision: ModelRevision | None = None) -> str:
        """Return why no worker can take a request for a model (and revision); empty when one can."""
        if self._candidates_for(model, adapter_id, revision):
            return ""
        reasons = (self._describe(session, adapter_id, revision) for session in self.sessions)
        of_revision = "" if revision is None else f" in revision {revision}"
        return f"No worker serves {model}{of_revision} right now: {'; '.join(reasons) or 'no workers found'}"

    def stale_reason(self, model: str, limits: WeightLimits) -> str:
        """Return why no worker that takes requests for a model has weights within limits; empty when one has."""
        versions = self._desired.versions(model)
        if any(versions.admits(limits, each.version_epoch) for each in self._candidates_for(model, 0, None)):
            return ""
        wanted = [] if limits.min_version is None else [f"{limits.min_version!r} or newer (`min_weight_version`)"]
        if limits.max_lag is not None:
            wanted.append(f"at most {limits.max_lag} versions behind (`max_weight_lag`)")
        newest = versions.newest.label or "those that workers started with"
        return f"No worker of {model} has weights that are {' and '.join(wanted)}. The newest are {newest}."

    def try_submit(
        self, model: str, submission: Submission, listeners: Sequence[SlotListener], placement: Placement = NEW
    ) -> PlacedRequest | None:
        """Send a request to a worker of a model that has capacity for all of it, else its first part to the one that
        has most; None where none has any.

        Raises RevisionLost if no worker is left that could take it, InvalidRequest if none has what it needs.
        """
        sequences, candidates = 1, list[WorkerSession]()
        found = self.candidates_to_place(model, submission.lora.id, placement)
        for session in self._able(found, model, submission, placement):
            free = min(len(listeners), _free_capacity(session))
            if placement.keeps_place:
                free = min(free, session.room_to_keep(placement.tenant, self._processes))
            if free > sequences:
                sequences, candidates = free, [session]
            elif free == sequences:
                candidates.append(session)
        if not candidates:
            self._check_revision(model, placement)
            self._check_noise(model, placement)
            return None
        decision = self._router.choose(candidates, submission, placement)
        session, part = decision.worker, listeners[:sequences]
        self.sequences_by_revision[session.model_name, session.revision.digest] += sequences
        placement.on_placed(session, submission, sequences)
        tenant = placement.tenant if placement.shared else ""
        placed = PlacedRequest(decision, session.submit(submission, part, decision.new, tenant), part)
        if placement.keeps_place:
            session.keep_places(placed.slots, placement.tenant)
        return placed

    def candidates_to_place(self, model: str, adapter_id: int, placement: Placement) -> list[WorkerSession]:
        """Return the workers that may take a request, whether they have capacity or not."""
        found = self._candidates_for(model, adapter_id, placement.revision)
        if not found and placement.revision is not None and not placement.begun:
            found = self._candidates_for(model, adapter_id, placement.revision.tokenizer_only)
        if placement.seeded_noise:
            found = [session for session in found if _draws(session, placement.seeded_noise)]
        if placement.failed_at:
            found = [session for session in found if session.address not in placement.failed_at] or found
        if placement.weights is not None:
            versions = self._desired.versions(model)
            found = [session for session in found if versions.admits(placement.weights, session.version_epoch)]
        if placement.keeps_place:
            tenant, processes = placement.tenant, self._processes
            found = [session for session in found if session.room_to_keep(tenant, processes) > 0]
        if placement.shared and not placement.resumed:
            found = [session for session in found if session.workload.has_room_for_prompt(placement.tenant)]
        return found

    def has_room_for_prompt(self, model: str, adapter_id: int, placement: Placement) -> bool:
        """Return whether a worker that may take a request has few prompts of its tenant, or there is none."""
        found = self._candidates_for(model, adapter_id, placement.revision)
        return not found or any(session.workload.has_room_for_prompt(placement.tenant) for session in found)

    def _able(
        self, candidates: list[WorkerSession], model: str, submission: Submission, placement: Placement
    ) -> list[WorkerSession]:
        """Return the candidates whose engines have all that a request needs.

        Raises InvalidRequest if no worker of the model has it; one that takes no requests now may later.
        """
        if submission.media is not None:
            taking = [session for session in candidates if session.takes_media]
            candidates = [session for session in taking if not session.media.is_silent] or taking
        if not [session for session in candidates if session.unsupported]:
            return candidates
        needs = needs_of(submission)
        able = [session for session in candidates if not needs & session.unsupported]
        if not able:
            lacking = [needs & each.unsupported for each in self.sessions if each.model_name == model]
            if all(lacking):
                raise _unsupported(model, candidates, lacking, placement)
        return able

    def _check_revision(self, model: str, placement: Placement) -> None:
        """Raise RevisionLost if only revisions that may not take a request are served, and no other may come back.

        A worker that is not connected may, until it is no longer listed; one that is to be reconciled will.
        """
        if placement.revision is None:
            return
        needed = placement.revision if placement.begun else placement.revision.tokenizer_only
        sessions = (session for session in self.sessions if session.model_name == model)
        if any(session.revision.accepts(needed) for session in sessions):
            return
        desired = self._desired.get(model)
        others = {
            each.revision.digest for each in self.sessions if each.model_name == model and each.control is not None
        }
        if not others or (desired is not None and desired.weights_epoch):
            return
        raise RevisionLost(
            f"The last worker of {model} in revision {placement.revision}, which this reply needs, is gone; revision "
            f"{', '.join(sorted(others))}, which is served now, would continue it differently.",
            retry_after_s=1,
        )

    def _check_noise(self, model: str, placement: Placement) -> None:
        """Raise RevisionLost if no listed worker draws the tokens of a seeded reply; one that is away may come back."""
        listed = (session for session in self.sessions if session.model_name == model)
        if placement.seeded_noise and not any(_draws(session, placement.seeded_noise) for session in listed):
            raise RevisionLost(
                f"The last worker of {model} that draws the tokens of this seeded reply is gone; those that are left "
                "draw others for its seed.",
                retry_after_s=1,
            )

    def _candidates_for(self, model: str, adapter_id: int, revision: ModelRevision | None) -> list[WorkerSession]:
        key = model, adapter_id, "" if revision is None else revision.key
        found = self._candidates.get(key)
        if found is None:
            found = [session for session in self.sessions if self._is_candidate(session, model, adapter_id, revision)]
            self._candidates[key] = found
        return found

    def _is_candidate(
        self, session: WorkerSession, model: str, adapter_id: int, revision: ModelRevision | None
    ) -> bool:
        return (
            session.state is SessionState.READY
            and not session.ejected
            and session.model_name == model
            and (revision is None or session.revision.accepts(revision))
            and not self._desired.out_of_sync(session.model_name, session.serving, adapter_id)
        )

    def _describe(self, session: WorkerSession, adapter_id: int, revision: ModelRevision | None) -> str:
        description = f"{session.address} is {session.state.value}"
        if session.state is SessionState.CONNECTING:
            return f"{description} ({session.last_error})"
        if revision is not None and not session.revision.accepts(revision):
            return f"{session.address} serves revision {session.revision}, which would continue the reply differently"
        reason = self.out_of_sync(session, adapter_id) or session.ejected
        return f"{description}, but {reason}" if reason else description

    def _add(self, address: str) -> None:
        is_vllm_http = address.startswith(("http://", "https://"))
        opens: OpenTransport = self._open_vllm_http if is_vllm_http else partial(GrpcTransport, self._channels)

        def open_transport(address: str, commands: CommandQueue) -> WorkerTransport:
            return PacedTransport(opens(address, commands), self.pace)

        session = WorkerSession(
            address, self._coordinator_id, self._prepare, self, open_transport, self._liveness, self.stats_by_model
        )
        session.follows_operations = self._desired.follows_weights
        self._members[address] = _Member(session, asyncio.create_task(session.run()))

    async def _remove_when_idle(self, member: "_Member") -> None:
        session = member.session
        aborted_s = 0.0
        while session.open_slots and aborted_s < _ABORTED_S:
            await asyncio.sleep(_IDLE_CHECK_S)
            aborted_s = 0.0 if session.awaited_slots else aborted_s + _IDLE_CHECK_S
        del self._members[session.address]
        self._candidates.clear()
        self._router.remove(session)
        self._reconciler.remove(session)
        self._on_workers_changed(session.model_name)
        member.running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await member.running
        log.info("worker %s removed", session.address)

    def _schedule_outlier_check(self) -> None:
        self._outlier_check = asyncio.get_running_loop().call_later(CHECK_INTERVAL_S, self._check_outliers)

    def _check_outliers(self) -> None:
        """Eject and readmit workers, which are judged by what they still have; then move what workers starve."""
        self._schedule_outlier_check()
        for session in self._outliers.check(self.sessions, self.is_covered, self._is_replaced):
            self._on_ejection_change(session)
        for_each(self.sessions, self._move_starved)

    def _move_starved(self, session: WorkerSession) -> None:
        is_held = self._desired.holds(session.model_name, session.serving)
        session.move_starved(self._outliers.settings, CHECK_INTERVAL_S, is_held, partial(self._can_go_on, session))

    def _on_ejection_change(self, session: WorkerSession) -> None:
        self._candidates.clear()
        if session.ejected:
            session.breaker.record_ejection()
            call_each([each.on_worker_ejected for each in self._listeners], session)
        else:
            call_each([each.on_worker_readmitted for each in self._listeners], session)
            self.on_slots_freed()

    # Callbacks of the sessions.

    def is_covered(self, session: WorkerSession) -> bool:
        """Return whether another worker of the model and revision takes requests."""
        return any(
            each is not session and self._is_candidate(each, session.model_name, 0, session.revision)
            for each in self.sessions
        )

    def _is_replaced(self, session: WorkerSession) -> bool:
        """Return whether a worker of another revision of the model takes requests, and serves them."""
        return any(
            each.has_served
            and each.errors <= MOST_ERRORS
            and not each.on_probation
            and not each.revision.accepts(session.revision)
            for each in self._candidates_for(session.model_name, 0, None)
        )

    def _can_go_on(self, session: WorkerSession, cause: Starvation) -> bool:
        """Return whether another worker of the model and revision can take what one starves."""
        others = [each for each in self._candidates_for(session.model_name, 0, session.revision) if each is not session]
        if cause is Starvation.QUEUED:
            return any(_free_capacity(each) > 0 for each in others)
        return any(each.is_idle_or_advances for each in others)

    def on_kv_events(self, session: WorkerSession, change: pb.CacheChange) -> None:
        """Update the prefix index."""
        self._router.on_kv_events(session, change)

    def on_survived(self, session: WorkerSession, submission: Submission) -> None:
        """Pass on that a worker survived the start of a request."""
        call_each(self._on_survived, session.model_name, submission)

    def on_session_change(self, session: WorkerSession) -> None:
        """Pass on losses, drains and free capacity, and reconcile drifted workers."""
        self._changed.set()
        self._candidates.clear()
        lost = session.state is SessionState.CONNECTING and not session.worker_drains
        if lost or session.engine_died:
            certain = session.engine_died or session.alive is False
            starts = session.recent_starts.take_all()
            worker = session.model_name, session.instance_id, certain, starts, session.unproven_at
            call_each([each.on_worker_lost for each in self._listeners], *worker)
        if session.state is SessionState.CONNECTING:
            self._on_workers_changed(session.model_name)
            if not any(each.model_name == session.model_name and each.control is not None for each in self.sessions):
                call_each([each.on_model_lost for each in self._listeners], session.model_name)
            return
        self._revisions.setdefault((session.model_name, session.revision.key))
        self._router.on_worker_state(session, f"{session.serving.weights_epoch} {session.serving.weight_version}")
        if session.worker_drains:
            call_each([each.on_worker_draining for each in self._listeners], session)
        self._observe([session])
        self.on_slots_freed()

    def _observe(self, sessions: Sequence[WorkerSession]) -> None:
        """Update the desired states by what sessions announce, and reconcile what has drifted."""
        changed = [self._desired.observe(each.model_name, each.serving) for each in sessions]
        self._candidates.clear()  # a callback may have filled it by the old desired state
        for_each({each.model_name: None for each in sessions}, self._on_workers_changed)
        for_each(self.sessions if any(changed) else sessions, self._reconciler.consider)

    async def _check_keys(self) -> None:
        """Judge all workers again whenever the keys of operations change."""
        while True:
            await asyncio.sleep(_KEYS_CHECK_S)
            if self._desired.reload_keys():
                self._observe([each for each in self.sessions if each.state is not SessionState.CONNECTING])
                self.on_slots_freed()

    def _on_workers_changed(self, model: str) -> None:
        served = {(session.model_name, session.revision.digest) for session in self.sessions}
        for gone in self.sequences_by_revision.keys() - served:
            del self.sequences_by_revision[gone]
        kept = {(session.model_name, session.revision.key) for session in self.sessions}
        for gone_key in self._revisions.keys() - kept:
            del self._revisions[gone_key]
        models = {session.model_name for session in self.sessions}
        for name in self.stats_by_model.keys() - models:
            del self.stats_by_model[name]
        self._desired.keep(models)
        call_each([each.on_workers_changed for each in self._listeners], model)

    def on_slots_freed(self) -> None:
        """Pass on that a worker may have free capacity."""
        call_each(self._on_capacity)


def _free_capacity(session: WorkerSession) -> int:
    return session.workload.free_capacity(session.breaker.half_open)


def _draws(session: WorkerSession, seeded_noise: str) -> bool:
    """Return whether a worker draws with a noise, as far as it is known."""
    return not seeded_noise or session.capabilities.seeded_noise in ("", seeded_noise)


def _unsupported(
    model: str, workers: Sequence[WorkerSession], lacking: Sequence[frozenset[str]], placement: Placement
) -> InvalidRequest | RevisionLost:
    """Return the error for a request of whose needs each worker lacks some."""
    engines = ", ".join(sorted({each.model.engine for each in workers if each.model}))
    by_all = frozenset.intersection(*lacking)
    names = sorted(by_all or frozenset.union(*lacking))
    needed = ", ".join(names) if by_all else f"all of {', '.join(names)}"
    message = f"No worker of {model} supports {needed}, as they are configured: they run {engines}."
    message += remedy_for(names[0])
    is_first = not (placement.resumed or placement.preempted or placement.joins)  # as of several inputs to pool
    if placement.begun and not is_first:
        return RevisionLost(f"The last worker is gone that could go on with this reply. {message}", retry_after_s=1)
    return InvalidRequest(message, param="model" if names[0] in ("lora", "token_types") else names[0])
