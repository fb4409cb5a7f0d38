"""Three tenants that share workers: by the coordinator's queue, first come first served, and in turns, in virtual time.

The orders that the queue is compared with are made here. With four coordinators one tenant sends requests to all.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

from benchmarks.load import percentile
from benchmarks.routing import SimulatedRequest
from benchmarks.shared_fleet import SECONDS, Order, SharedFleet, TenantRequest
from tokenwire.coordinator.fleet.admission.fair_queue import FairQueue
from tokenwire.coordinator.fleet.admission.queued_request import PartHandle, QueuedRequest
from tokenwire.worker.simulated_engine.model import SimulatedModel, load_model

_WORKERS = 3


class FirstComeQueue(FairQueue):
    """Serves the first that came."""

    def heads(self, may_go: Callable[[QueuedRequest], bool] = bool) -> list[QueuedRequest]:
        """Return the oldest request."""
        return [min(self, key=lambda entry: entry.arrival)]


class TurnsQueue(FairQueue):
    """Serves tenants in turns, one request each."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self._turns = count()
        self._last_turn: Counter[str] = Counter()

    def heads(self, may_go: Callable[[QueuedRequest], bool] = bool) -> list[QueuedRequest]:
        """Return the oldest request of the tenant whose turn is the longest ago."""
        return [min(self, key=lambda entry: (self._last_turn[entry.placement.tenant], entry.arrival))]

    def start(self, entry: QueuedRequest, part: PartHandle) -> None:
        """Take a tenant's turn."""
        self._last_turn[entry.placement.tenant] = next(self._turns) + 1
        super().start(entry, part)


ORDERS = {
    "first come, first served": Order(FirstComeQueue),
    "requests in turns": Order(TurnsQueue),
    "shares of the work": Order(FairQueue),
    "four coordinators": Order(FairQueue, coordinators=4),
    "four coordinators, with a store": Order(FairQueue, coordinators=4, stored=True),
}


Load = Callable[[SharedFleet, random.Random], None]


def greedy(fleet: SharedFleet, chance: random.Random) -> None:
    """400 clients with long replies, each of which sends its next request at once."""
    for _ in range(400):
        _repeat(fleet, "greedy", partial(_text, chance, 500), tokens=400)


def bursty(fleet: SharedFleet, chance: random.Random) -> None:
    """150 requests with a common prefix at once, every 10 seconds."""
    for second in range(5, int(SECONDS), 10):
        prefix = _text(chance, 1000)
        for _ in range(150):
            at = second + chance.random() / 10
            request = TenantRequest(at, prefix + _text(chance, 100), 100, tenant="bursty")
            fleet.send(request, at)


def small(fleet: SharedFleet, chance: random.Random) -> None:
    """Two clients with short requests."""
    for _ in range(2):
        _repeat(fleet, "small", partial(_text, chance, 200), tokens=100, pause_s=0.5)


LOADS: dict[str, Load] = {"greedy": greedy, "bursty": bursty, "small": small}


def _repeat(
    fleet: SharedFleet, tenant: str, prompt: Callable[[], list[int]], tokens: int, pause_s: float = 0.0
) -> None:
    """Send the requests of a client, one after the other."""

    def send(_: SimulatedRequest | None, now: float) -> None:
        at = now + pause_s
        fleet.send(TenantRequest(at, prompt(), tokens, on_end=send, tenant=tenant), at)

    send(None, 0.0)


def _text(chance: random.Random, tokens: int) -> list[int]:
    return chance.choices(range(256), k=tokens)


def run(seed: int = 0) -> dict[str, Any]:
    """Run the three tenants together with every order; return what each got, and Jain's index of what it kept."""
    model = load_model(None, None)
    one = ORDERS["shares of the work"]
    alone = {name: _replies(_run(one, {name: load}, 1, model, seed), name) for name, load in LOADS.items()}
    rows, indexes = [], []
    for name, order in ORDERS.items():
        fleet = _run(order, LOADS, _WORKERS, model, seed)
        rows += [{"order": name, **_row(fleet, tenant, alone[tenant])} for tenant in LOADS]
        kept = [min(1.0, _replies(fleet, tenant) / alone[tenant]) for tenant in LOADS]
        index = sum(kept) ** 2 / (len(kept) * sum(each**2 for each in kept))
        indexes.append({"order": name, "jain": index, "least_kept": min(kept)})
    return {"fairness": rows, "fairness_index": indexes}


def _row(fleet: SharedFleet, tenant: str, alone: int) -> dict[str, Any]:
    waits = [1000 * each.first_token_s for each in fleet.served(tenant) if each.reply]
    return {
        "tenant": tenant,
        "replies": _replies(fleet, tenant),
        "replies_alone_on_a_third": alone,
        "rejected": fleet.rejected(tenant),
        "ttft_p50_ms": percentile(waits, 50) if waits else None,
        "ttft_p95_ms": percentile(waits, 95) if waits else None,
    }


def _run(order: Order, loads: dict[str, Load], workers: int, model: SimulatedModel, seed: int) -> SharedFleet:
    fleet = SharedFleet(order, list(loads), model, workers)
    for name, load in loads.items():
        load(fleet, random.Random(f"{name} {seed}"))
    asyncio.run(fleet.run())
    return fleet


def _replies(fleet: SharedFleet, tenant: str) -> int:
    return sum(len(each.reply) == each.max_tokens for each in fleet.served(tenant))
