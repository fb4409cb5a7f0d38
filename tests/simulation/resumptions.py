"""How lost sequences go on: from where, at which worker, and after what."""

from collections import Counter

from tokenwire.coordinator.app import Core
from tokenwire.coordinator.fleet.failover.replay import Replay
from tokenwire.coordinator.fleet.failover.sequence import Loss, ResumableSequence
from tokenwire.coordinator.fleet.request_handle import Placement
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.coordinator.fleet.slots import SlotListener

_MOVED = "resumed after its worker began to drain"
RESUMPTIONS = (
    *("resumed from its tokens", "resumed by a replay", "resumed from the beginning"),
    *("resumed at another worker", "resumed at the same worker, reconnected", "resumed at the same address, restarted"),
    *("resumed after a lost session", "resumed after its engine died", "resumed after a refusal"),
    *("resumed after its worker handed it back", _MOVED),
)
"""All that have a name: each resumption counts for one of each line."""


class ResumptionWitness:
    """Sees the losses of one coordinator process, and where it sends what was lost."""

    def __init__(self, core: Core, reached: Counter[str]) -> None:
        self._reached = reached
        self._causes: dict[ResumableSequence, str] = {}
        self._addresses: dict[str, str] = {}
        """Of worker processes, by instance id."""
        self._on_lost = core.failover.on_lost
        vars(core.failover)["on_lost"] = self.on_lost

    def on_lost(self, sequence: ResumableSequence, loss: Loss) -> None:
        """Keep why a sequence was lost."""
        if loss.certain:
            cause = "its engine died"
        elif loss.refused:
            cause = "a refusal"
        else:
            cause = "a lost session" if loss.died else "its worker handed it back"
        self._causes[sequence] = f"resumed after {cause}"
        self._on_lost(sequence, loss)

    def on_placed(self, session: WorkerSession, placement: Placement, listener: SlotListener) -> None:
        """Count a submission to a worker, if it resumes a sequence."""
        self._addresses[session.instance_id] = session.address
        if placement.resumed:
            sequence = listener._downstream if isinstance(listener, Replay) else listener
            assert isinstance(sequence, ResumableSequence)
            self._reached[self._causes.pop(sequence, _MOVED)] += 1
            self._reached[f"resumed at {self._place(session, placement)}"] += 1
            replays = isinstance(listener, Replay) and not listener._caught_up
            goes_on = bool(sequence.token_ids)
            how = "by a replay" if replays else "from its tokens" if goes_on else "from the beginning"
            self._reached[f"resumed {how}"] += 1

    def _place(self, session: WorkerSession, placement: Placement) -> str:
        if session.instance_id in placement.avoid:
            return "the same worker, reconnected"
        before = {self._addresses.get(each) for each in placement.avoid}
        return "the same address, restarted" if session.address in before else "another worker"
