"""All workers of this coordinator, as they come and go, and the choice among them."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from tokenwire.coordinator.fleet.capabilities import common_capabilities
from tokenwire.coordinator.fleet.desired_state import DesiredStates
from tokenwire.coordinator.fleet.liveness import LivenessSettings
from tokenwire.coordinator.fleet.reconciler import Reconciler
from tokenwire.coordinator.fleet.request_handle import NEW, PlacedRequest, Placement
from tokenwire.coordinator.fleet.routing import Router
from tokenwire.coordinator.fleet.session import Prepare, SessionState, WorkerSession
from tokenwire.coordinator.fleet.session_listener import SessionListener
from tokenwire.coordinator.fleet.session_stats import StatsByModel
from tokenwire.coordinator.fleet.slots import SlotListener
from tokenwire.coordinator.fleet.transport.grpc import GrpcTransport
from tokenwire.coordinator.fleet.transport.vllm_http.settings import VllmHttpSettings
from tokenwire.coordinator.fleet.transport.vllm_http.transport import VllmHttpTransport
from tokenwire.errors import Unavailable
from tokenwire.for_each import for_each
from tokenwire.peer_auth.client import Link
from tokenwire.v1 import inference_pb2 as pb

log = logging.getLogger(__name__)

Lost = Callable[[str, str, bool, Sequence[pb.Submit]], None]
"""Called with a model, the instance id of a lost worker, whether it is certain to be dead, and its recent starts."""

_RETRY_AFTER_S = 1.0
_IDLE_CHECK_S = 0.1
"""How often a worker that leaves is looked at: to be told of its last slot would cost something for every frame."""


@dataclass(slots=True)
class _Member:
    session: WorkerSession
    running: asyncio.Task[None]
    leaving: asyncio.Task[None] | None = None
    """Waits for the last slot of a worker that is not wanted any more."""


class WorkerPool(SessionListener):
    """Sessions with workers that may come and go. Workers that fell behind their target are brought along."""

    def __init__(
        self,
        coordinator_id: str,
        prepare: Prepare,
        desired: DesiredStates | None = None,
        *,
        link: Link | None = None,
        router: Router | None = None,
        on_model_gone: Callable[[str], None] = lambda name: None,
        liveness: LivenessSettings | None = None,
        vllm_http: VllmHttpSettings | None = None,
    ) -> None:
        """`on_model_gone` is called with the first name of a model when its last worker is gone."""
        self.stats_by_model: StatsByModel = {}
        """What sessions have counted."""
        self._coordinator_id = coordinator_id
        self._prepare = prepare
        self._on_model_gone = on_model_gone
        self._desired = desired or DesiredStates()
        self._reconciler = Reconciler(self._desired)
        self._members: dict[str, _Member] = {}
        """By address, in the order in which they came."""
        self._candidates: dict[tuple[str, int], list[WorkerSession]] = {}
        """Who can take requests, by model and adapter: kept until a session changes."""
        self._link = link or Link()
        self._vllm_http = vllm_http or VllmHttpSettings()
        self._router = router or Router()
        self._liveness = liveness
        self._changed = asyncio.Event()
        self._subscribers: list[Callable[[], None]] = []
        self._drained: Callable[[WorkerSession], None] = lambda session: None
        self._lost: Lost = lambda model, instance_id, certain, recent_starts: None
        self._survived: Callable[[str, pb.Submit], None] = lambda model, submit: None

    @property
    def sessions(self) -> Sequence[WorkerSession]:
        """All sessions at this moment, connected or not, and those with workers that leave."""
        return [member.session for member in self._members.values()]

    @property
    def open_slots(self) -> int:
        """Slots without their terminal event, in all sessions."""
        return sum(session.open_slots for session in self.sessions)

    def update(self, addresses: Iterable[str]) -> None:
        """Connect to workers that are new, and leave those that are not named any more.

        One that is left gets no new requests; its session closes when its last slot has ended.
        """
        wanted = dict.fromkeys(addresses)
        for address in wanted:
            member = self._members.get(address)
            if member is None:
                self._join(address)
            elif member.leaving is not None:
                member.leaving.cancel()
                member.leaving = None
                member.session.readmit()
        for address, member in self._members.items():
            if address not in wanted and member.leaving is None:
                member.session.retire()
                member.leaving = asyncio.create_task(self._leave(member))

    async def stop(self) -> None:
        """Close all sessions; workers abort what still runs."""
        members = list(self._members.values())
        self._members.clear()
        self._candidates.clear()
        for member in members:
            if member.leaving is not None:
                member.leaving.cancel()
            member.running.cancel()
        await asyncio.gather(*(member.running for member in members), return_exceptions=True)
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
        """Return whether the worker at an address takes requests, as far as it is concerned."""
        member = self._members.get(address)
        return member is not None and member.session.state is SessionState.READY

    def out_of_sync(self, session: WorkerSession, adapter_id: int = 0) -> str:
        """Say why a connected worker gets no new requests (for an adapter); empty when it does."""
        out_of_sync = self._desired.out_of_sync(session.name, session.serving, adapter_id)
        error = self._reconciler.reconcile_error(session)
        return f"{out_of_sync} ({error})" if out_of_sync and error else out_of_sync

    def reconcile_error(self, session: WorkerSession) -> str:
        """Return the last error of reconciling a worker; empty without one."""
        return self._reconciler.reconcile_error(session)

    def lives(self, instance_id: str) -> bool | None:
        """Return whether a worker's process still runs; None while that has yet to show, after its session was lost."""
        return next((session.lives for session in self.sessions if session.instance_id == instance_id), False)

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Have something called whenever a worker may have got room: it became ready, or sequences ended."""
        self._subscribers.append(changed)

    def room(self, model: str, adapter_id: int = 0) -> int:
        """Return how many more sequences the workers of a model could begin at once."""
        return sum(max(0, _free_capacity(session)) for session in self._able(model, adapter_id))

    def capabilities(self, model: str, adapter_id: int = 0) -> pb.EngineCapabilities:
        """Return what all workers of a model can that could take a request now; nothing where there are none."""
        return common_capabilities(session.capabilities for session in self._able(model, adapter_id))

    def capacity(self, model: str) -> int:
        """Return how many sequences the workers of a model run at a time, those included that are away."""
        return sum(each.workload.capacity for each in self.sessions if each.model and model in each.model.names)

    def absence(self, model: str, adapter_id: int = 0) -> str:
        """Say why no worker can take a request for a model; empty when one can."""
        if self._able(model, adapter_id):
            return ""
        reasons = "; ".join(self._reason(session, adapter_id) for session in self.sessions) or "no workers found"
        return f"No worker serves {model} right now: {reasons}"

    def submit(
        self, model: str, submit: pb.Submit, listeners: Sequence[SlotListener], placement: Placement = NEW
    ) -> PlacedRequest:
        """Send a request to a worker of a model, whether or not one has free capacity. Raises Unavailable."""
        placed = self.try_submit(model, submit, listeners, placement)
        if placed is not None:
            return placed
        candidates = self._able(model, submit.lora.id)
        if not candidates:
            raise Unavailable(self.absence(model, submit.lora.id), retry_after_s=_RETRY_AFTER_S)
        return self._place(candidates, submit, listeners, placement)

    def try_submit(
        self, model: str, submit: pb.Submit, listeners: Sequence[SlotListener], placement: Placement = NEW
    ) -> PlacedRequest | None:
        """Send a request to a worker of a model with free capacity, at best for all of it; None where none has any."""
        free = {session: _free_capacity(session) for session in self._able(model, submit.lora.id)}
        candidates = [session for session in free if free[session] >= len(listeners)]
        candidates = candidates or [session for session in free if free[session] > 0]
        return self._place(candidates, submit, listeners, placement) if candidates else None

    def watch_losses(self, lost: "Lost", survived: Callable[[str, pb.Submit], None]) -> None:
        """Have something called when a worker died, or may have, with what it had just begun with; and when a worker
        got past the beginning of a request."""
        self._lost, self._survived = lost, survived

    def watch_drains(self, drained: Callable[[WorkerSession], None]) -> None:
        """Have something called when a worker says that it is about to stop."""
        self._drained = drained

    def _place(
        self,
        candidates: Sequence[WorkerSession],
        submit: pb.Submit,
        listeners: Sequence[SlotListener],
        placement: Placement,
    ) -> PlacedRequest:
        decision = self._router.choose(candidates, submit, placement)
        session, new_tokens = decision.worker, decision.new
        placement.on_placed(session)
        return PlacedRequest(decision, session.submit(submit, listeners, new_tokens), listeners)

    def _able(self, model: str, adapter_id: int) -> list[WorkerSession]:
        found = self._candidates.get((model, adapter_id))
        if found is None:
            found = [session for session in self.sessions if self._is_able(session, model, adapter_id)]
            self._candidates[model, adapter_id] = found
        return found

    def _is_able(self, session: WorkerSession, model: str, adapter_id: int) -> bool:
        return (
            session.state is SessionState.READY
            and session.model is not None
            and model in session.model.names
            and not self._desired.out_of_sync(session.name, session.serving, adapter_id)
        )

    def _reason(self, session: WorkerSession, adapter_id: int) -> str:
        reason = f"{session.address} is {session.state.value}"
        if session.state is SessionState.CONNECTING:
            return f"{reason} ({session.last_error})"
        out_of_sync = self.out_of_sync(session, adapter_id)
        return f"{reason}, but {out_of_sync}" if out_of_sync else reason

    def _join(self, address: str) -> None:
        is_vllm_http = address.startswith(("http://", "https://"))
        open_transport = (
            partial(VllmHttpTransport, self._vllm_http) if is_vllm_http else partial(GrpcTransport, self._link)
        )
        session = WorkerSession(
            address, self._coordinator_id, self._prepare, self, open_transport, self._liveness, self.stats_by_model
        )
        self._members[address] = _Member(session, asyncio.create_task(session.run()))

    async def _leave(self, member: "_Member") -> None:
        session = member.session
        while session.open_slots:  # noqa: ASYNC110 (see _IDLE_CHECK_S)
            await asyncio.sleep(_IDLE_CHECK_S)
        del self._members[session.address]
        self._candidates.clear()
        self._router.forget(session)
        self._reconciler.forget(session)
        member.running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await member.running
        log.info("worker %s was left", session.address)

    # What sessions report.

    def is_covered(self, session: WorkerSession) -> bool:
        """Return whether another worker of the model takes requests."""
        return any(each is not session and self._is_able(each, session.name, 0) for each in self.sessions)

    def on_cache_change(self, session: WorkerSession, change: pb.CacheChange) -> None:
        """Update the index of prefixes."""
        self._router.on_cache_change(session, change)

    def on_survived(self, session: WorkerSession, submit: pb.Submit) -> None:
        """Pass on that a worker got past the beginning of a request."""
        self._survived(session.name, submit)

    def on_session_change(self, session: WorkerSession) -> None:
        """Pass on losses, drains and free capacity, and bring drifted workers to the desired state."""
        self._changed.set()
        self._candidates.clear()
        lost = session.state is SessionState.CONNECTING and not session.worker_drains
        if lost or session.engine_died:
            certain = session.engine_died or session.lives is False
            self._lost(session.name, session.instance_id, certain, session.recent_starts.take_all())
        if session.state is SessionState.CONNECTING:
            if not any(each.name == session.name and each.control is not None for each in self.sessions):
                self._on_model_gone(session.name)
            return
        self._router.on_worker_state(session, f"{session.serving.weights_epoch} {session.serving.weight_version}")
        if session.worker_drains:
            self._drained(session)
        changed = self._desired.observe(session.name, session.serving)
        self._candidates.clear()  # what was computed before, in a callback, knew the old desired state
        for_each(self.sessions if changed else (session,), self._reconciler.consider)
        self.on_slots_freed()

    def on_slots_freed(self) -> None:
        """Notify subscribers that a worker may have free capacity."""
        for_each(self._subscribers, lambda changed: changed())


def _free_capacity(session: WorkerSession) -> int:
    return session.workload.free_capacity(session.breaker.half_open)
