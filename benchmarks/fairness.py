"""Three tenants that share workers: by the coordinator's queue, first come first served, and in turns, in virtual time.

The queue, its bound, the router and the engines' schedulers are real; the orders that are compared with are made here.
"""

import heapq
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

from benchmarks.load import percentile
from benchmarks.routing import Engine, Session, SimulatedRequest
from tokenwire.coordinator.fleet.admission.fair_queue import FairQueue
from tokenwire.coordinator.fleet.admission.queued_request import PartHandle, QueuedRequest
from tokenwire.coordinator.fleet.request_handle import NEW, Placement
from tokenwire.coordinator.fleet.routing import Router
from tokenwire.coordinator.fleet.slots import DiscardListener, SlotListener
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.interface import Step
from tokenwire.worker.simulated_engine.model import SimulatedModel, load_model

_WORKERS = 3
_SECONDS = 120.0
_STEP_S = 0.01
_PLACES = 192
"""In the queue: as many as the workers run at a time."""
_RETRY_S = 1.0
"""After which a client tries again that was rejected."""


class CountedSequence(DiscardListener):
    """Counts the tokens of a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.gained = self.cached_tokens = 0
        self.ended = False

    def prefilled(self, info: pb.PrefillInfo) -> None:
        """Keep what was cached."""
        self.cached_tokens = info.cached_tokens

    def step(self, token_ids: list[int], finish: pb.Finish | None) -> bool:
        """Count."""
        self.gained += len(token_ids)
        self.ended = finish is not None
        return False


@dataclass(slots=True, eq=False)
class TenantRequest(SimulatedRequest):
    """A request of a tenant, and what came of it."""

    tenant: str = ""
    sequence: CountedSequence = field(default_factory=CountedSequence)


class ListeningEngine(Engine):
    """An engine whose tokens are counted for requests."""

    def _dispatch(self, step: Step, frames: dict[Session, pb.StepFrame], now: float) -> None:
        requests = {sequence: self._requests[sequence][1] for sequence in step.sequences}
        for sequence, info in step.prefills:
            self._sequence(requests[sequence]).prefilled(info)
        for sequence, token_ids in zip(step.sequences, step.token_ids, strict=True):
            self._sequence(requests[sequence]).step(token_ids, None)
        for sequence, finish in step.finishes:
            self._sequence(requests[sequence]).step([], finish)
        super()._dispatch(step, frames, now)

    def _sequence(self, request: SimulatedRequest) -> CountedSequence:
        assert isinstance(request, TenantRequest)
        return request.sequence


class FirstComeQueue(FairQueue):
    """Serves the first that came."""

    def heads(self) -> list[QueuedRequest]:
        """Return the oldest request."""
        return [min(self, key=lambda entry: entry.arrival)]


class TurnsQueue(FairQueue):
    """Serves tenants in turns, one request each."""

    def __init__(self) -> None:
        super().__init__()
        self._turns = count()
        self._last_turn: Counter[str] = Counter()

    def heads(self) -> list[QueuedRequest]:
        """Return the oldest request of the tenant whose turn is the longest ago."""
        return [min(self, key=lambda entry: (self._last_turn[entry.placement.tenant], entry.arrival))]

    def start(self, entry: QueuedRequest, part: PartHandle) -> None:
        """Take a tenant's turn."""
        self._last_turn[entry.placement.tenant] = next(self._turns) + 1
        super().start(entry, part)


ORDERS: dict[str, type[FairQueue]] = {
    "first come, first served": FirstComeQueue,
    "requests in turns": TurnsQueue,
    "shares of the work": FairQueue,
}


@dataclass(frozen=True, slots=True)
class SentPart:
    """The handle of a request that was sent."""

    session: Any
    listeners: Sequence[SlotListener]

    def abort(self) -> None:
        """Do nothing: all requests are served to their end."""

    def abort_on(self, session: object) -> None:
        """Do nothing."""

    def abort_one(self, listener: SlotListener) -> None:
        """Do nothing."""

    def abort_at(self, place: int) -> None:
        """Do nothing."""

    def running(self) -> Sequence[int]:
        """Return whether its one sequence runs."""
        return [place for place, each in enumerate(self.listeners) if not getattr(each, "ended", False)]

    def explain(self) -> str:
        """Return no reasons."""
        return ""


class SharedFleet:
    """A coordinator with a queue in front of engines, and the clients of its tenants."""

    def __init__(self, queue: FairQueue, model: SimulatedModel, workers: int) -> None:
        self.now = 0.0
        self.served: list[TenantRequest] = []
        self.rejected: Counter[str] = Counter()
        self._queue = queue
        self._waiting: dict[QueuedRequest, TenantRequest] = {}
        self._order = count()
        self._coming: list[tuple[float, int, TenantRequest]] = []
        self._engines = [ListeningEngine(f"worker-{n}", model, lambda: self.now, 1) for n in range(workers)]
        self._router = Router()
        for engine in self._engines:
            self._router.on_worker_state(engine.sessions[0], "")

    def send(self, request: TenantRequest, at: float) -> None:
        """Let a client send a request, if the time is not over by then."""
        if at < _SECONDS:
            heapq.heappush(self._coming, (at, next(self._order), request))

    def run(self) -> None:
        """Run for the time of the load."""
        while self.now < _SECONDS:
            self.now += _STEP_S
            while self._coming and self._coming[0][0] <= self.now:
                self._submit(heapq.heappop(self._coming)[2])
            self._queue.read_work()
            while self._queue.requests and self._start(self._queue.heads()[0]):
                pass
            for engine in self._engines:
                engine.step(self.now)

    def _submit(self, request: TenantRequest) -> None:
        params = pb.SamplingParams(max_tokens=request.max_tokens, ignore_eos=True, temperature=0)
        submission = Submission("", request.prompt, params)
        placement = Placement(tenant=request.tenant)
        share = self._queue.share_of(placement, submission.priority)
        entry = QueuedRequest("", submission, [request.sequence], placement, share)
        if not self._admits(entry):
            self.rejected[request.tenant] += 1
            self.send(request, self.now + _RETRY_S)
            return
        self._waiting[entry] = request
        self._queue.add(entry)
        while type(self._queue) is FairQueue and (refused := self._queue.places.to_refuse(entry.placement, _PLACES)):
            self._queue.remove(refused)
            self.rejected[refused.placement.tenant] += 1
            self.send(self._waiting.pop(refused), self.now + _RETRY_S)

    def _admits(self, entry: QueuedRequest) -> bool:
        places = self._queue.places
        if type(self._queue) is FairQueue:
            return places.admits(entry.placement, 1, _PLACES)
        return places.total < _PLACES

    def _start(self, entry: QueuedRequest) -> bool:
        """Send a request if an engine has room for it."""
        candidates = [each.sessions[0] for each in self._engines if each.sessions[0].workload.free_capacity() > 0]
        if not candidates:
            return False
        decision = self._router.choose(candidates, entry.submission, NEW)
        session, request = decision.worker, self._waiting.pop(entry)
        slots = [session.slots.take(DiscardListener())]
        session.workload.on_submit(slots, decision.new)
        session.engine.submit(session, entry.submission.message(slots).submit, request)
        self._queue.start(entry, SentPart(session, entry.listeners))
        self._queue.remove(entry)
        self.served.append(request)
        return True


Load = Callable[[SharedFleet, random.Random], None]


def greedy(fleet: SharedFleet, chance: random.Random) -> None:
    """400 clients with long replies, each of which sends its next request at once."""
    for _ in range(400):
        _repeat(fleet, "greedy", partial(_text, chance, 500), tokens=400)


def bursty(fleet: SharedFleet, chance: random.Random) -> None:
    """150 requests with a common prefix at once, every 10 seconds."""
    for second in range(5, int(_SECONDS), 10):
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
    alone = {name: _replies(_run(FairQueue, {name: load}, 1, model, seed), name) for name, load in LOADS.items()}
    rows, indexes = [], []
    for order, queue in ORDERS.items():
        fleet = _run(queue, LOADS, _WORKERS, model, seed)
        rows += [{"order": order, **_row(fleet, name, alone[name])} for name in LOADS]
        kept = [min(1.0, _replies(fleet, name) / alone[name]) for name in LOADS]
        index = sum(kept) ** 2 / (len(kept) * sum(each**2 for each in kept))
        indexes.append({"order": order, "jain": index, "least_kept": min(kept)})
    return {"fairness": rows, "fairness_index": indexes}


def _row(fleet: SharedFleet, tenant: str, alone: int) -> dict[str, Any]:
    waits = [1000 * each.first_token_s for each in fleet.served if each.tenant == tenant and each.reply]
    return {
        "tenant": tenant,
        "replies": _replies(fleet, tenant),
        "replies_alone_on_a_third": alone,
        "rejected": fleet.rejected[tenant],
        "ttft_p50_ms": percentile(waits, 50),
        "ttft_p95_ms": percentile(waits, 95),
    }


def _run(queue: type[FairQueue], loads: dict[str, Load], workers: int, model: SimulatedModel, seed: int) -> SharedFleet:
    fleet = SharedFleet(queue(), model, workers)
    for name, load in loads.items():
        load(fleet, random.Random(f"{name} {seed}"))
    fleet.run()
    return fleet


def _replies(fleet: SharedFleet, tenant: str) -> int:
    return sum(each.tenant == tenant and len(each.reply) == each.max_tokens for each in fleet.served)
