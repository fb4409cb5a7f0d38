"""Brings workers that missed fleet operations to the target, again and again until they are there."""

import asyncio
import logging

from tokenwire.coordinator.fleet.control_client import ControlCall, call_worker
from tokenwire.coordinator.fleet.desired_state import DesiredStates
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.v1 import control_pb2

log = logging.getLogger(__name__)

_SETTLE_S = 1.0
"""An operation reaches workers one after the other: those that were steered before get this long to follow."""
_LAST_RETRY_S = 30.0


class Reconciler:
    """Watches sessions; at most one attempt at a time for each."""

    def __init__(self, desired: DesiredStates, first_retry_s: float = 1.0, timeout_s: float = 600.0) -> None:
        self._desired = desired
        self._first_retry_s = first_retry_s
        self._timeout_s = timeout_s
        self._tasks: dict[WorkerSession, asyncio.Task[None]] = {}
        self._errors: dict[WorkerSession, str] = {}

    def consider(self, session: WorkerSession) -> None:
        """Look at a worker; begins to bring it along when it is behind."""
        running = self._tasks.get(session)
        if (running is None or running.done()) and self._has_drifted(session):
            self._tasks[session] = task = asyncio.create_task(self._reconcile(session))
            task.add_done_callback(lambda done: self._on_done(session, done))

    def problem(self, session: WorkerSession) -> str:
        """Say why a worker could not be brought to the target; empty when nothing is known against it."""
        return self._errors.get(session, "")

    def forget(self, session: WorkerSession) -> None:
        """Leave a worker as it is: it does not come back."""
        if task := self._tasks.get(session):
            task.cancel()
        self._errors.pop(session, None)

    async def stop(self) -> None:
        """Leave all workers as they are."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _on_done(self, session: WorkerSession, done: asyncio.Task[None]) -> None:
        if self._tasks.get(session) is done:  # another one may have begun since
            del self._tasks[session]

    def _has_drifted(self, session: WorkerSession) -> bool:
        return session.control is not None and self._desired.has_drifted(session.name, session.serving)

    async def _reconcile(self, session: WorkerSession) -> None:
        retry_s = self._first_retry_s
        await asyncio.sleep(_SETTLE_S if session.serving.epoch else 0)
        while self._has_drifted(session):
            try:
                answer = await call_worker(session, self._adopt(session))
            except Exception as error:  # whatever it is: a worker that is left behind gets no requests
                self._record_error(session, str(error))
                await asyncio.sleep(retry_s)
                retry_s = min(retry_s * 2, _LAST_RETRY_S)
            else:
                self._errors.pop(session, None)
                session.on_serving_state(answer.serving)
                log.info("worker %s was brought to epoch %d", session.address, answer.serving.epoch)
        self._errors.pop(session, None)

    def _adopt(self, session: WorkerSession) -> ControlCall[control_pb2.AdoptStateResponse]:
        request = control_pb2.AdoptStateRequest(target=self._desired.of(session.name))
        return lambda stub: stub.AdoptState(request, timeout=self._timeout_s)

    def _record_error(self, session: WorkerSession, problem: str) -> None:
        if self._errors.get(session) != problem:
            log.warning("worker %s cannot be made like the others: %s", session.address, problem)
        self._errors[session] = problem
