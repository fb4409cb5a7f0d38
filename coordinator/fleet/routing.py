"""The choice of a worker for a request, among those that can take it."""

import itertools
from collections.abc import Sequence

from coordinator.fleet.session import WorkerSession
from coordinator.fleet.submission import Placement
from tokenwire.v1 import inference_pb2 as pb


class Router:
    """Chooses the worker with the least to do."""

    def __init__(self) -> None:
        self._turns = itertools.count()
        self._last_turn: dict[WorkerSession, int] = {}

    def choose(self, candidates: Sequence[WorkerSession], submit: pb.Submit, placement: Placement) -> WorkerSession:
        """Choose among workers that can take a request; there is at least one."""
        # Among equals the one that waited longest, so that an idle fleet takes turns.
        chosen = min(
            candidates,
            key=lambda session: (
                session.instance_id in placement.avoid,
                session.open_slots,
                self._last_turn.get(session, -1),
            ),
        )
        self._last_turn[chosen] = next(self._turns)
        return chosen

    def forget(self, session: WorkerSession) -> None:
        """Forget a worker that does not come back."""
        self._last_turn.pop(session, None)
