"""Coordinators in front of engines that all of them use, and the requests of tenants, in virtual time.

The queues, their bound, the routers and the engines' schedulers are real; the store in which coordinators count
together is in memory.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, cycle
from typing import Any, NamedTuple

from benchmarks.routing import Engine, Session, SimulatedRequest
from benchmarks.share_ledger import LedgerStore, ShareLedger
from tokenwire.coordinator.fleet.admission.fair_queue import FairQueue
from tokenwire.coordinator.fleet.admission.queued_request import QueuedRequest
from tokenwire.coordinator.fleet.admission.share_exchange import SharedClass, ShareExchange
from tokenwire.coordinator.fleet.request_handle import NEW, Placement
from tokenwire.coordinator.fleet.routing import Router
from tokenwire.coordinator.fleet.slots import DiscardListener, SlotListener
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.interface import Step
from tokenwire.worker.simulated_engine.model import SimulatedModel

SECONDS = 120.0
_STEP_S = 0.01
_EXCHANGE_S = 0.1
_PLACES = 192
"""In a queue: as many as the workers run at a time."""
_RETRY_S = 1.0
"""After which a client tries again that was rejected."""


class Order(NamedTuple):
    """How tenants are served."""

    queue: type[FairQueue]
    coordinators: int = 1
    """The first tenant sends requests to all in turn, each other one to one of them."""
    stored: bool = False
    """Whether they count together."""


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


class Coordinator:
    """A queue in front of engines, and the clients whose requests it has."""

    def __init__(self, number: int, queue: FairQueue, engines: Sequence[Engine]) -> None:
        self.queue = queue
        self.rejected: Counter[str] = Counter()
        self.served: list[TenantRequest] = []
        self._waiting: dict[QueuedRequest, TenantRequest] = {}
        self._sessions = [engine.sessions[number] for engine in engines]
        self._router = Router()
        for session in self._sessions:
            self._router.on_worker_state(session, "")

    def shares(self) -> Iterable[SharedClass]:
        """Yield the shares of each priority."""
        return (SharedClass("", priority, shares) for priority, shares in self.queue.shares.items())

    def submit(self, request: TenantRequest) -> Sequence[TenantRequest]:
        """Queue a request; return those that are rejected."""
        params = pb.SamplingParams(max_tokens=request.max_tokens, ignore_eos=True, temperature=0)
        submission = Submission("", request.prompt, params)
        placement = Placement(tenant=request.tenant)
        share = self.queue.share_of(placement, submission.priority)
        entry = QueuedRequest("", submission, [request.sequence], placement, share)
        rejected = [] if self._admits(entry) else [request]
        if not rejected:
            self._waiting[entry] = request
            self.queue.add(entry)
        while type(self.queue) is FairQueue and not rejected:
            refused = self.queue.places.to_refuse(entry.placement, _PLACES)
            if refused is None:
                break
            self.queue.remove(refused)
            rejected.append(self._waiting.pop(refused))
        self.rejected.update(each.tenant for each in rejected)
        return rejected

    def _admits(self, entry: QueuedRequest) -> bool:
        places = self.queue.places
        if type(self.queue) is FairQueue:
            return places.admits(entry.placement, 1, _PLACES)
        return places.total < _PLACES

    def start_all(self) -> None:
        """Send what the engines have room for."""
        self.queue.read_work()
        while self.queue.requests and self._start(self.queue.heads()[0]):
            pass

    def _start(self, entry: QueuedRequest) -> bool:
        """Send a request if an engine has room for it."""
        free = {session: session.workload.free_capacity() for session in self._sessions}
        candidates = [session for session, places in free.items() if places > 0]
        assert entry.share is not None
        if not candidates or not entry.share.room(sum(free[each] for each in candidates), 1, entry.tokens(1)):
            return False
        decision = self._router.choose(candidates, entry.submission, NEW)
        session, request = decision.worker, self._waiting.pop(entry)
        slots = [session.slots.take(DiscardListener())]
        session.workload.on_submit(slots, decision.new)
        session.engine.submit(session, entry.submission.message(slots).submit, request)
        self.queue.start(entry, SentPart(session, entry.listeners))
        self.queue.remove(entry)
        self.served.append(request)
        return True


class SharedFleet:
    """Coordinators in front of engines, and the clients of tenants."""

    def __init__(self, order: Order, tenants: Sequence[str], model: SimulatedModel, workers: int) -> None:
        self.now = 0.0
        self._order = count()
        self._coming: list[tuple[float, int, TenantRequest]] = []
        number = order.coordinators
        self._engines = [ListeningEngine(f"worker-{n}", model, self._clock, number) for n in range(workers)]
        self.coordinators = [Coordinator(n, order.queue(self._clock), self._engines) for n in range(number)]
        self._doors: Mapping[str, Iterator[Coordinator]] = {
            name: cycle([self.coordinators[n % number]] if n else self.coordinators) for n, name in enumerate(tenants)
        }
        ledger = ShareLedger(self._clock)
        stored = self.coordinators if order.stored else []
        self._exchanges = [ShareExchange(LedgerStore(ledger, f"{n}"), each.shares) for n, each in enumerate(stored)]

    def _clock(self) -> float:
        return self.now

    def send(self, request: TenantRequest, at: float) -> None:
        """Let a client send a request, if the time is not over by then."""
        if at < SECONDS:
            heapq.heappush(self._coming, (at, next(self._order), request))

    async def run(self) -> None:
        """Run for the time of the load."""
        exchange_at = _EXCHANGE_S
        while self.now < SECONDS:
            self.now += _STEP_S
            while self._coming and self._coming[0][0] <= self.now:
                request = heapq.heappop(self._coming)[2]
                for rejected in next(self._doors[request.tenant]).submit(request):
                    self.send(rejected, self.now + _RETRY_S)
            if self.now >= exchange_at:
                exchange_at += _EXCHANGE_S
                for exchange in self._exchanges:
                    await exchange.exchange()
            for coordinator in self.coordinators:
                coordinator.start_all()
            for engine in self._engines:
                engine.step(self.now)

    def served(self, tenant: str) -> list[TenantRequest]:
        """Return a tenant's requests that were sent to engines."""
        return [request for each in self.coordinators for request in each.served if request.tenant == tenant]

    def rejected(self, tenant: str) -> int:
        """Return how many of a tenant's requests were rejected."""
        return sum(each.rejected[tenant] for each in self.coordinators)
