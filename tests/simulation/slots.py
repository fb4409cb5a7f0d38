"""Slots of workers whose tokens nobody wants: their coordinator must have sent an abort."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.journeys import Choice
from tests.simulation.world import Node

if TYPE_CHECKING:
    from tests.simulation.run import SimulationRun
    from tests.simulation.witness import WatchedSession

_NOTICE_S = 4.0
"""Until a coordinator knows that a client has left, over slow links."""

IsWanted = Callable[[Choice], bool]


class SlotWatch:
    """Looks at all open slots, every now and then."""

    def __init__(self, run: "SimulationRun") -> None:
        self._run = run
        self._since: dict[tuple[WatchedSession, int], float] = {}
        """Since when each of them is without an owner."""

    def check(self) -> None:
        """Report the slots that go on though their choice has ended, or has gone on elsewhere."""
        now = self._run.world.time()
        before, self._since = self._since, {}
        for session in self._run.witness.sessions:
            if not _runs(session.coordinator):
                continue
            for slot in session.unwanted(self._is_wanted):
                since = self._since[session, slot] = before.get((session, slot), now)
                if since > 0 and now - since > _NOTICE_S:
                    name = session.open[slot].request_id
                    self._run.violate(f"slot {slot} of {session.address} goes on for {name}, which has left it")
                    self._since[session, slot] = 0.0

    def _is_wanted(self, choice: Choice) -> bool:
        client = self._run.client_of(choice[0])
        return client is None or not client.has_ended(choice[1])


def _runs(node: Node | None) -> bool:
    return node is not None and not node.dead and not node.frozen
