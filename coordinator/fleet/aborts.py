"""Aborts by request id on all workers, because another coordinator may have sent the request."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable

from tokenwire.coordinator.fleet.control_client import call_worker
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.errors import TokenwireError, Unavailable
from tokenwire.v1 import control_pb2

log = logging.getLogger(__name__)

_TIMEOUT_S = 10.0


class FleetAborts:
    """Aborts requests on every connected worker; their coordinators get the tokens so far, with finish reason abort."""

    def __init__(
        self,
        sessions: Callable[[], Iterable[WorkerSession]],
        abort_queued: Callable[[Collection[str] | None], int] = lambda request_ids: 0,
    ) -> None:
        """`sessions` returns the current ones; `abort_queued` aborts queued requests by id, None: all of them."""
        self._sessions = sessions
        self._abort_queued = abort_queued

    async def by_id(self, request_ids: Collection[str]) -> int:
        """Abort these requests; return the number of aborted sequences. Raises Unavailable if no worker responds."""
        queued = self._abort_queued(request_ids)
        return await self._call(control_pb2.AbortRequest(request_ids=request_ids), queued)

    async def everything(self) -> int:
        """Abort all requests; return the number of aborted sequences. Raises Unavailable if no worker responds."""
        queued = self._abort_queued(None)
        return await self._call(control_pb2.AbortRequest(all=True), queued)

    async def _call(self, request: control_pb2.AbortRequest, queued: int) -> int:
        responses = await asyncio.gather(*(self._call_one(session, request) for session in self._sessions()))
        aborted = [response for response in responses if response is not None]
        if not aborted and not queued:
            raise Unavailable("No worker is connected to abort requests.", retry_after_s=1)
        return queued + sum(aborted)

    async def _call_one(self, session: WorkerSession, request: control_pb2.AbortRequest) -> int | None:
        if session.control is None:
            return None  # its requests end with the session
        try:
            return int((await call_worker(session, lambda stub: stub.Abort(request, timeout=_TIMEOUT_S))).aborted_slots)
        except TokenwireError as error:
            log.warning("worker %s did not abort requests: %s", session.address, error.message)
            return None
