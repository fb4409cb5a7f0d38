"""Sequences that an engine computes for nobody: their session has ended, so its worker must have aborted them."""

from typing import TYPE_CHECKING

from tests.simulation.processes import WorkerHost
from tokenwire.worker.engine.frame_buffer import FrameBuffer
from tokenwire.worker.engine.interface import EngineSequence

if TYPE_CHECKING:
    from tests.simulation.run import SimulationRun

_NOTICE_S = 1.0
"""Until a worker has aborted what a session leaves, besides what its engine's intake takes."""


class OrphanWatch:
    """Looks at all engines, every now and then."""

    def __init__(self, run: "SimulationRun") -> None:
        self._run = run
        config = run.script.config
        self._intake_s = 2 * config["intake_s"] + config["lateness_s"]
        self._bound_s = _NOTICE_S + self._intake_s + config.get("adapter_s", 0.0)
        self._since: dict[EngineSequence, float] = {}
        """Since when each of them has no session. The time in which its worker is frozen does not count."""
        self._sessions: dict[WorkerHost, set[FrameBuffer]] = {}
        """By their buffers, at the last look."""
        self._ended: dict[FrameBuffer, float] = {}
        """When sessions were first missed."""
        self._seen: set[EngineSequence] = set()
        """Those that were in an engine at the last look, with a session or without."""

    def check(self) -> None:
        """Report the sequences whose session has ended for too long, or before they began."""
        now = self._run.world.time()
        before, self._since = self._since, {}
        seen, self._seen = self._seen, set()
        for worker in self._run.workers:
            if not _is_at_work(worker):
                continue
            orphans = self._look(worker, now)
            for sequence in orphans:
                since = self._since[sequence] = before.get(sequence, now)
                ended = self._ended.get(sequence.frame_buffer, now)
                if now - since > self._bound_s:
                    self._run.violate(f"{worker.name} goes on with {sequence.request_id}, whose session has ended")
                    self._since[sequence] = now
                elif sequence not in seen and now - ended > self._intake_s:
                    self._run.violate(f"{worker.name} has begun {sequence.request_id}, whose session had ended")

    def _look(self, worker: WorkerHost, now: float) -> list[EngineSequence]:
        """Note a worker's sessions and sequences; return those that have no session."""
        assert worker.server is not None
        assert worker.engine is not None
        sessions = {session.frame_buffer for session in worker.server._sessions}
        for ended in self._sessions.get(worker, set()) - sessions:
            self._ended[ended] = now
        self._sessions[worker] = sessions
        self._seen |= worker.engine.sequences
        return [each for each in worker.engine.sequences if each.frame_buffer not in sessions]


def _is_at_work(worker: WorkerHost) -> bool:
    node = worker.node
    return node is not None and not node.dead and not node.frozen and None not in (worker.server, worker.engine)
