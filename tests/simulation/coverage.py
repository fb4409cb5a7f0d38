"""What a long run must have met: each case that is promised to be tried, named by its effect."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from tests.simulation.faults import (
    CONNECTION_CUT,
    COORDINATOR_KILLED,
    ENGINE_BROKEN,
    WORKER_DRAINED,
    WORKER_KILLED,
)
from tests.simulation.outcomes import OUTCOMES, USED_UP, outcomes_of
from tests.simulation.phases import IDLE, ON_WORKER, StreamPhase
from tests.simulation.resumptions import RESUMPTIONS
from tests.simulation.script import FAULTS, OPERATIONS, ROLLOUTS, STORE_EVENTS
from tests.simulation.slow_pace import MERGE_REFUSED_FOR_WEIGHTS
from tests.simulation.submissions import RESUBMITTED
from tests.simulation.varieties import VARIETIES, varieties_of

if TYPE_CHECKING:
    from tests.simulation.run import SimulationRun

LONG_RUN = 1000
"""So many seeds must meet everything."""
_ON_EVENTS = (*FAULTS, *OPERATIONS, *ROLLOUTS, *STORE_EVENTS)
_HITS = (
    *(f"{hit}: {phase}" for hit in (WORKER_KILLED, WORKER_DRAINED, ENGINE_BROKEN) for phase in (*ON_WORKER, IDLE)),
    *(f"{CONNECTION_CUT}: {phase}" for phase in (*ON_WORKER, IDLE)),
    *(f"{COORDINATOR_KILLED}: {phase}" for phase in (*StreamPhase, IDLE)),
)
DEMANDED = (
    *(f"event {kind}" for kind in _ON_EVENTS),
    *_HITS,
    *RESUMPTIONS,
    *RESUBMITTED,
    *("resumed", "replayed", "poison", "failed"),
    *(each for each in OUTCOMES if each != USED_UP),
    *("chat continued by exact ids", "chat continued by ids that differ from the text's"),
    *("chat continued by another coordinator", "chat continued by another coordinator by exact ids"),
    *("exact turn due by the same coordinator", "exact turn due through the store"),
    *("choice moved to another placement", "adapter's stream moved", "reply of several weight versions"),
    *("connection cut", "writer blocked", "slow reader", "request sent in parts"),
    *("store asked", "store asked in vain", "store asked, and skipped"),
    *("store answered with an error", "entry of the store evicted"),
    *("rejected: full", "rejected: timeout", "rejected: no_worker", "refused for another tenant"),
    "taken back for another tenant",
    *("queued", "contest of tenants", "contest after idleness", "held up"),
    *("half of the bound waited: queue", "half of the bound waited: worker"),
    "half of the bound waited: between workers",
    *("operation failed: 502", "operation failed: connection lost", "operation refused: wrong admin key"),
    *(f"{kind} restarted under the {age} minor" for kind in "cw" for age in ("older", "current", "newer")),
    *("fleet of two revisions", "frames merged", MERGE_REFUSED_FOR_WEIGHTS),
    *VARIETIES,
)
"""What is counted besides is printed, and not demanded.

Among it is half of the bound of what is prepared, or whose end is sent: nothing that is simulated delays that by more
than a lookup in the store may take. Another is a key's minute whose tokens are used up: it takes a request for exactly
all that is left, and one more within 0.15 s. One that wants more than is left is demanded: that is another refusal.
"""


def missed_cases(reached_in: Mapping[str, int]) -> Iterator[str]:
    """Yield what is demanded and did not happen in any run."""
    yield from (name for name in DEMANDED if not reached_in.get(name))


def reached(run: "SimulationRun") -> Counter[str]:
    """Count what has happened in a run."""
    count = Counter(outcome for client in run.clients for outcome in outcomes_of(client))
    count.update(run.network.reached)
    count.update(run.world.reached)
    count.update(run.seen)
    count.update(run.witness.submissions.reached)
    for coordinator in run.coordinators:
        if coordinator.core is not None:
            count.update(asdict(coordinator.core.failover.stats))
            count["frames merged"] += coordinator.core.pool.pace.merged
            for (_, reason), number in coordinator.core.queue.rejections.items():
                count[f"rejected: {reason}"] += number
    count.update(run.conversations.due)
    count.update(run.upgrades.restarts)
    for client in run.clients:
        count.update(varieties_of(client, run.script.config))
    count["chat continued"] = sum(1 for client in run.clients if client.spec["follows"])
    count["chat continued by exact ids"] = sum(client.reused_ids for client in run.clients)
    count["chat continued by ids that differ from the text's"] = sum(each.reused_other_ids for each in run.clients)
    moved = [each for each in run.clients if each.tokens and each.moved_coordinator]
    count["chat continued by another coordinator"] = len(moved)
    count["chat continued by another coordinator by exact ids"] = sum(each.reused_ids for each in moved)
    count["adapter asked for"] = sum(client.spec["model"] is not None for client in run.clients)
    count["fleet of two revisions"] = len({worker.weights for worker in run.workers}) > 1
    for client in run.clients:
        count["adapter's stream moved"] += sum(each.moved for each in client.choices if client.spec["model"])
        count["reply of several weight versions"] += client.several_versions
        count["choice moved to another placement"] += sum(each.moved for each in client.choices)
    return count
