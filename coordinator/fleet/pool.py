"""All workers of this coordinator, and the choice among them."""

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from coordinator.fleet.reconciler import Reconciler
from coordinator.fleet.routing import Router
from coordinator.fleet.session import Prepare, SessionState, WorkerSession
from coordinator.fleet.slots import SlotListener
from coordinator.fleet.submission import NEW, Placement
from coordinator.fleet.targets import Targets
from tokenwire.errors import Unavailable
from tokenwire.v1 import inference_pb2 as pb

_RETRY_AFTER_S = 1.0


@dataclass(frozen=True, slots=True)
class Ticket:
    """One submitted request: where it runs, and how to end it early."""

    session: WorkerSession
    slots: Sequence[int]
    listeners: Sequence[SlotListener]

    def abort(self) -> None:
        """Abort the sequences that still run. Safe at any time, more than once."""
        running = [
            slot
            for slot, listener in zip(self.slots, self.listeners, strict=True)
            if self.session.listens(slot, listener)
        ]
        if running:
            self.session.abort(running)


class WorkerPool:
    """Sessions with a list of workers: start, submit, stop. Workers that fell behind their target are brought along."""

    def __init__(
        self, addresses: Iterable[str], coordinator_id: str, prepare: Prepare, targets: Targets | None = None
    ) -> None:
        self._targets = targets or Targets()
        self._reconciler = Reconciler(self._targets)
        self._sessions = [WorkerSession(address, coordinator_id, prepare, self._notice) for address in addresses]
        self._router = Router()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def sessions(self) -> Sequence[WorkerSession]:
        """All sessions, connected or not."""
        return self._sessions

    @property
    def open_slots(self) -> int:
        """Slots without their terminal event, in all sessions."""
        return sum(session.open_slots for session in self._sessions)

    def start(self) -> None:
        """Begin to connect."""
        self._tasks = [asyncio.create_task(session.run()) for session in self._sessions]

    async def stop(self) -> None:
        """Close all sessions; workers abort what still runs."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._reconciler.stop()

    async def wait_ready(self) -> None:
        """Wait until a worker takes requests."""
        waiters = [asyncio.create_task(session.ready.wait()) for session in self._sessions]
        try:
            await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiter in waiters:
                waiter.cancel()

    def is_ready(self) -> bool:
        """Tell whether any worker takes requests."""
        return any(session.state is SessionState.READY and not self.misfit(session) for session in self._sessions)

    def misfit(self, session: WorkerSession, adapter_id: int = 0) -> str:
        """Say why a connected worker gets no new requests (for an adapter); empty when it does."""
        misfit = self._targets.misfit(session.name, session.serving, adapter_id)
        problem = self._reconciler.problem(session)
        return f"{misfit} ({problem})" if misfit and problem else misfit

    def problem(self, session: WorkerSession) -> str:
        """Say why a worker cannot be made like the others; empty when nothing is known against it."""
        return self._reconciler.problem(session)

    def submit(
        self, model: str, submit: pb.Submit, listeners: Sequence[SlotListener], placement: Placement = NEW
    ) -> Ticket:
        """Send a request to a worker of a model. Raises Unavailable."""
        session = self._router.choose(self._candidates(model, submit.lora.id), submit, placement)
        return Ticket(session, session.submit(submit, listeners), listeners)

    def _candidates(self, model: str, adapter_id: int) -> list[WorkerSession]:
        candidates = [
            session
            for session in self._sessions
            if session.state is SessionState.READY
            and session.model is not None
            and model in session.model.names
            and not self._targets.misfit(session.name, session.serving, adapter_id)
        ]
        if not candidates:
            reasons = "; ".join(self._reason(session, adapter_id) for session in self._sessions)
            raise Unavailable(f"No worker serves {model} right now: {reasons}", retry_after_s=_RETRY_AFTER_S)
        return candidates

    def _reason(self, session: WorkerSession, adapter_id: int) -> str:
        reason = f"{session.address} is {session.state.value}"
        if session.state is SessionState.CONNECTING:
            return f"{reason} ({session.last_error})"
        misfit = self.misfit(session, adapter_id)
        return f"{reason}, but {misfit}" if misfit else reason

    def _notice(self, session: WorkerSession) -> None:
        changed = self._targets.hear(session.name, session.serving)
        for each in self._sessions if changed else (session,):
            self._reconciler.consider(each)
