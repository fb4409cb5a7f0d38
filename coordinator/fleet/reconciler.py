"""Reconciles workers that missed admin operations with the desired state, and retries until they match.

Those that announce what no coordinator ordered are left as they are.
"""

import asyncio
import logging

from tokenwire.coordinator.fleet.control_client import adopt_state, call_worker
from tokenwire.coordinator.fleet.desired_state import DesiredStates
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.v1 import inference_pb2 as pb

log = logging.getLogger(__name__)

_SETTLE_S = 1.0
"""An operation reaches workers one after another: those already under management get this long to follow."""
_LAST_RETRY_S = 30.0


class Reconciler:
    """Runs at most one reconciliation at a time for each session."""

    def __init__(self, desired: DesiredStates, first_retry_s: float = 1.0, timeout_s: float = 600.0) -> None:
        self._desired = desired
        self._first_retry_s = first_retry_s
        self._timeout_s = timeout_s
        self._tasks: dict[WorkerSession, asyncio.Task[None]] = {}
        self._errors: dict[WorkerSession, str] = {}
        self._aside: set[WorkerSession] = set()

    def consider(self, session: WorkerSession) -> None:
        """Start reconciling a worker if it has drifted, and is not set aside."""
        self._log_aside(session)
        running = self._tasks.get(session)
        if (running is None or running.done()) and self._has_drifted(session):
            self._tasks[session] = task = asyncio.create_task(self._reconcile(session))
            task.add_done_callback(lambda done: self._on_done(session, done))

    def reconcile_error(self, session: WorkerSession) -> str:
        """Return the last error of reconciling a worker; empty without one."""
        return self._errors.get(session, "")

    def remove(self, session: WorkerSession) -> None:
        """Stop reconciling a worker that was removed."""
        if task := self._tasks.get(session):
            task.cancel()
        self._errors.pop(session, None)
        self._aside.discard(session)

    async def stop(self) -> None:
        """Stop all reconciliations."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _log_aside(self, session: WorkerSession) -> None:
        reason = self._desired.set_aside(session.model_name, session.serving)
        if not reason:
            self._aside.discard(session)
        elif session not in self._aside:
            self._aside.add(session)
            log.warning("worker %s is set aside: %s", session.address, reason)

    def _on_done(self, session: WorkerSession, done: asyncio.Task[None]) -> None:
        if self._tasks.get(session) is done:  # another one may have started since
            del self._tasks[session]

    def _has_drifted(self, session: WorkerSession) -> bool:
        return session.control is not None and self._desired.has_drifted(session.model_name, session.serving)

    async def _reconcile(self, session: WorkerSession) -> None:
        retry_s = self._first_retry_s
        await asyncio.sleep(_SETTLE_S if session.serving.epoch else 0)
        while self._has_drifted(session):
            target = self._desired.target(session.model_name, session.serving)
            try:
                response = await call_worker(session, adopt_state(target, self._timeout_s))
            except Exception as error:  # of any kind: a worker that stays out of sync gets no requests
                self._record_error(session, str(error))
            else:
                self._errors.pop(session, None)
                session.on_serving_state(response.serving)
                log.info("worker %s reconciled to epoch %d", session.address, response.serving.epoch)
                if not self._has_drifted(session) or self._has_changed(session, target):
                    continue
                # It has adopted something else. A loop without a pause would do nothing but call it.
            await asyncio.sleep(retry_s)
            retry_s = min(retry_s * 2, _LAST_RETRY_S)
        self._errors.pop(session, None)

    def _has_changed(self, session: WorkerSession, target: pb.ServingState) -> bool:
        return list(self._desired.target(session.model_name, session.serving).records) != list(target.records)

    def _record_error(self, session: WorkerSession, error: str) -> None:
        if self._errors.get(session) != error:
            log.warning("worker %s cannot be reconciled: %s", session.address, error)
        self._errors[session] = error
