"""Sequences that an engine computes for nobody: their session has ended, so its worker must have aborted them."""

from typing import TYPE_CHECKING

from tests.simulation.processes import WorkerHost
from tokenwire.worker.engine.interface import EngineSequence

if TYPE_CHECKING:
    from tests.simulation.run import SimulationRun

_NOTICE_S = 1.0
"""Until a worker has aborted what a session leaves, besides what its engine's intake takes."""


class OrphanWatch:
    """Looks at all engines, every now and then."""

    def __init__(self, run: "SimulationRun") -> None:
        self._run = run
        self._bound_s = _NOTICE_S + 2 * run.script.config["intake_s"] + run.script.config["lateness_s"]
        self._since: dict[EngineSequence, float] = {}
        """Since when each of them has no session. The time in which its worker is frozen does not count."""

    def check(self) -> None:
        """Report the sequences whose session has ended for too long."""
        now = self._run.world.time()
        before, self._since = self._since, {}
        for worker in self._run.workers:
            for sequence in _orphans(worker):
                since = self._since[sequence] = before.get(sequence, now)
                if now - since > self._bound_s:
                    self._run.violate(f"{worker.name} goes on with {sequence.request_id}, whose session has ended")
                    self._since[sequence] = now


def _orphans(worker: WorkerHost) -> list[EngineSequence]:
    node, server, engine = worker.node, worker.server, worker.engine
    if node is None or node.dead or node.frozen or server is None or engine is None:
        return []
    owned = {session.frame_buffer for session in server._sessions}
    return [each for each in engine.sequences if each.frame_buffer not in owned]
