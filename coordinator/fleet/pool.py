"""All workers of this coordinator, and the choice among them."""

import asyncio
import contextlib
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from coordinator.fleet.session import Prepare, SessionState, WorkerSession
from coordinator.fleet.slots import SlotListener
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
    """Sessions with a list of workers: start, submit, stop."""

    def __init__(self, addresses: Iterable[str], coordinator_id: str, prepare: Prepare) -> None:
        self._sessions = [WorkerSession(address, coordinator_id, prepare) for address in addresses]
        self._tasks: list[asyncio.Task[None]] = []
        self._turns = itertools.count()
        self._last_turn = dict.fromkeys(self._sessions, -1)

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
        return any(session.state is SessionState.READY for session in self._sessions)

    def submit(self, model: str, submit: pb.Submit, listeners: Sequence[SlotListener]) -> Ticket:
        """Send a request to the least loaded worker of a model. Raises Unavailable."""
        session = self._pick(model)
        self._last_turn[session] = next(self._turns)
        return Ticket(session, session.submit(submit, listeners), listeners)

    def _pick(self, model: str) -> WorkerSession:
        candidates = [
            session
            for session in self._sessions
            if session.state is SessionState.READY and session.model is not None and model in session.model.names
        ]
        if not candidates:
            raise Unavailable(f"No worker serves {model} right now: {self._reasons()}", retry_after_s=_RETRY_AFTER_S)
        # Among equals the one that waited longest, so that an idle fleet takes turns.
        return min(candidates, key=lambda session: (session.open_slots, self._last_turn[session]))

    def _reasons(self) -> str:
        return "; ".join(
            f"{session.address} is {session.state.value}"
            + (f" ({session.last_error})" if session.state is SessionState.CONNECTING else "")
            for session in self._sessions
        )
