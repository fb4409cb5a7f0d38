"""A witness of one coordinator's admission queue: judges its order, its shares among tenants, and its length.

It stands before the queue and behind it, so it sees what is submitted, and what is sent to workers at the moment of the
decision. It judges by what docs/explanation/scheduling.md promises, without the tags that the queue computes.

One file beyond the usual length, since one class stands on both sides of the queue.
"""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.simulation.comebacks import Comebacks
from tests.simulation.journeys import Choice, Journeys
from tests.simulation.observed_work import ObservedPart, ObservedSequence
from tests.simulation.preempted import is_for_another
from tests.simulation.world import NODE
from tokenwire.coordinator.app import Core
from tokenwire.coordinator.fleet.admission.queued_request import QueuedRequest
from tokenwire.coordinator.fleet.admission.settings import LEAST_QUEUE, AdmissionSettings
from tokenwire.coordinator.fleet.placed_request import PlacedRequest
from tokenwire.coordinator.fleet.request_handle import NEW, LateTenant, Placement, SubmissionHandle
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.coordinator.fleet.slots import SlotListener
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.errors import Overloaded, Unavailable
from tokenwire.protocol.model_revision import ModelRevision
from tokenwire.protocol.weight_limits import WeightLimits

_ROUNDING = 1e-6

OnPlaced = Callable[[WorkerSession, Placement, SlotListener], None]
"""Called with each submission: its worker, and its first listener."""
Expected = Callable[[str], tuple[str, int, int] | None]
"""Returns tenant, weight and priority of a request by its id; None: it is not known."""


def _choices(submission: Submission, listeners: Sequence[SlotListener]) -> list[Choice]:
    """Return which choices of its request a submission has."""
    return [(submission.request_id, submission.start + place) for place in range(len(listeners))]


def _could_have_gone(entry: QueuedRequest, placed: PlacedRequest, submission: Submission) -> bool:
    """Return whether a queued request could have been sent in place of one that was."""
    revision = entry.placement.revision
    may_go_there = revision is None or placed.session.revision.accepts(revision)
    may_go_there &= placed.session.address not in entry.placement.failed_at
    draws = entry.placement.seeded_noise in ("", placed.session.capabilities.seeded_noise)
    return may_go_there and draws and entry.submission.lora.id == submission.lora.id


def _room(session: WorkerSession, placement: Placement) -> float:
    """Return how many more places a request's tenant may keep at a worker; any if it keeps none."""
    return session.room_to_keep(placement.tenant) if placement.keeps_place else math.inf


def _max_min_shares(sizes: Mapping[str, int], weights: Mapping[str, int], limit: int) -> dict[str, float]:
    """Return what each tenant gets of a limit: all that it wants, or an equal share of what others leave, by weight."""
    shares: dict[str, float] = {}
    while len(shares) < len(sizes):
        open_ = sizes.keys() - shares.keys()
        each = (limit - sum(shares.values())) / sum(weights[tenant] for tenant in open_)
        modest: dict[str, float] = {
            tenant: sizes[tenant] for tenant in open_ if sizes[tenant] <= each * weights[tenant] + _ROUNDING
        }
        shares |= modest or {tenant: each * weights[tenant] for tenant in open_}
    return shares


def _class(entry: QueuedRequest) -> tuple[bool, int]:
    """Return what comes before shares: resumed requests are first, then those of a lower priority."""
    return not entry.placement.resumed, entry.submission.priority


def _may_be_refused(entry: QueuedRequest) -> bool:
    placement = entry.placement
    return not (placement.resumed or placement.preempted or placement.joins or entry.parts)


@dataclass(slots=True)
class _Rivalry:
    """Two tenants that have had requests of one priority queued without a break.

    Of two that are behind by different amounts at the beginning, the one that is further behind is to be next: so the
    first one must never have started with a larger lead than the second one left to it.
    """

    periods: tuple[int, int]
    most: float = -math.inf
    """By how much more work the first one was ahead at most when it started a request."""
    least: float = math.inf
    """By how much it was ahead at least when the second one did."""

    def started(self, lead: float, is_first: bool) -> float:
        """Take that one of them starts a request with this lead; return by how much the wrong one has started."""
        if is_first:
            self.most = max(self.most, lead)
        else:
            self.least = min(self.least, lead)
        return self.most - self.least


class QueueWitness:
    """Takes the queue's place for failover, and the workers' place for the queue."""

    def __init__(
        self,
        core: Core,
        settings: AdmissionSettings,
        expected: Expected,
        violate: Callable[[str], None],
        reached: Counter[str],
        journeys: Journeys,
        on_placed: OnPlaced,
    ) -> None:
        self._journeys = journeys
        self._queue = core.queue
        self._pool = core.pool
        self._settings = settings
        self._expected = expected
        self._violate = violate
        self._reached = reached
        self._on_placed = on_placed
        self._arrivals = itertools.count()
        self._arrived: dict[QueuedRequest, int] = {}
        """In which order queued requests came."""
        self._periods: Counter[tuple[int, str]] = Counter()
        """How often a tenant has begun to wait, by priority and tenant."""
        self._rivalries: dict[tuple[int, str, str], _Rivalry] = {}
        self._parts: defaultdict[tuple[int, str], list[ObservedPart]] = defaultdict(list)
        """What has started, by priority and tenant, since requests of that priority wait, and what ran then."""
        self._leads: dict[tuple[int, str], float] = {}
        """What ran then counts in advance, by priority and tenant."""
        self._comebacks = Comebacks()
        self._live = core.failover.live
        core.failover._below = self
        core.queue._workers = self  # type: ignore[assignment]

    # In place of the queue.

    def check_open(self, model: str, adapter_id: int, placement: Placement = NEW, sequences: int = 1) -> None:
        """Check that one more request would be admitted."""
        is_full = self._is_full(model, placement, sequences)
        try:
            self._queue.check_open(model, adapter_id, placement, sequences)
        except (Overloaded, Unavailable) as error:
            self._on_rejected(error, is_full, model)
            raise

    def submit(
        self, model: str, submission: Submission, listeners: Sequence[SlotListener], placement: Placement = NEW
    ) -> SubmissionHandle:
        """Submit a request."""
        self._check_name(submission, placement)
        is_begun = placement.resumed or placement.preempted
        is_full = self._is_full(model, placement, len(listeners)) and not is_begun
        if placement.preempted:
            self._judge_preempted(model, submission, placement)
        waiting = self._waiting(model)
        try:
            handle = self._queue.submit(model, submission, listeners, placement)
        except (Overloaded, Unavailable) as error:
            self._on_rejected(error, is_full, model)
            raise
        if isinstance(handle, QueuedRequest) and handle.queued:
            if is_full and not handle.parts:
                self._violate(f"a request was queued, though {self._lengths(model)} were queued")
            self._judge_refused(handle, waiting)
            self._on_queued(handle, waiting)
            self._journeys.on_queued(_choices(handle.submission, handle.listeners), self._now())
        return handle

    def _on_rejected(self, error: Overloaded | Unavailable, is_full: bool, model: str) -> None:
        self._journeys.rejections[NODE.get()].add(error.message)
        if not is_full:
            self._violate(f"a request was rejected, though {self._lengths(model)} were queued")

    def _now(self) -> float:
        return NODE.get().world.time()

    def _check_name(self, submission: Submission, placement: Placement) -> None:
        expected = self._expected(submission.request_id)
        actual = placement.tenant, placement.weight, submission.priority
        if expected is not None and actual != expected:
            self._violate(f"{submission.request_id} of {expected} is submitted as one of {actual}")

    def _is_full(self, model: str, placement: Placement, sequences: int) -> bool:
        limit, waiting = self._limit(model), self._waiting(model)
        sizes = Counter({placement.tenant: sequences})
        weights = {placement.tenant: placement.weight}
        for each in waiting:
            sizes[each.placement.tenant] += len(each.listeners)
            weights[each.placement.tenant] = each.placement.weight
        share = _max_min_shares(sizes, weights, limit)[placement.tenant]
        return not limit or (bool(waiting) and sizes[placement.tenant] > share + _ROUNDING)

    def _limit(self, model: str) -> int:
        limit = self._settings.max_queue
        return max(LEAST_QUEUE, self._pool.usual_queue(model)) if limit is None else limit

    def _judge_refused(self, admitted: QueuedRequest, before: Sequence[QueuedRequest]) -> None:
        """Judge which queued requests were refused for one that was admitted."""
        left = self._waiting(admitted.model)
        sizes: Counter[str] = Counter()
        for each in before:
            sizes[each.placement.tenant] += len(each.listeners)
        own = (sizes[admitted.placement.tenant] + len(admitted.listeners)) / admitted.placement.weight
        refused = sorted(set(before) - set(left), key=lambda each: self._arrived[each], reverse=True)
        queued, limit = sizes.total() + len(admitted.listeners), self._limit(admitted.model)
        if refused and queued <= limit:
            self._violate(f"{len(refused)} requests were refused, though {queued} of {limit} places were taken")
        for each in refused:
            self._reached["refused for another tenant"] += 1
            name, tenant = each.submission.request_id, each.placement.tenant
            self._journeys.displaced.add(name)
            if not _may_be_refused(each):
                self._violate(f"{name} was refused, though it was begun")
            if sizes[tenant] / each.placement.weight <= own:
                self._violate(f"{name} was refused for a request of {admitted.placement.tenant!r}, which has as much")
            newer = [other for other in left if other.placement.tenant == tenant and _may_be_refused(other)]
            if any(self._arrived.get(other, -1) > self._arrived[each] for other in newer):
                self._violate(f"{name} was refused before newer requests of its tenant")
            sizes[tenant] -= len(each.listeners)

    def _lengths(self, model: str) -> int:
        return sum(len(entry.listeners) for entry in self._waiting(model))

    def _waiting(self, model: str) -> list[QueuedRequest]:
        return list(self._queue._queues.get(model, ()))

    def _on_queued(self, entry: QueuedRequest, waiting: Sequence[QueuedRequest]) -> None:
        self._reached["queued"] += 1
        arrival = next(self._arrivals)  # what was taken back goes before what its tenant has queued
        self._arrived = {each: self._arrived[each] for each in waiting}
        self._arrived[entry] = -arrival if entry.placement.preempted else arrival
        if any(each.submission.lora.id != entry.submission.lora.id for each in waiting):
            self._rivalries.clear()  # shares of one adapter's capacity say nothing about that of another's
        tenant, place = entry.placement.tenant, (entry.submission.priority, entry.placement.tenant)
        equals = [each for each in waiting if _class(each) == _class(entry)]
        if not equals and not entry.placement.resumed:
            self._comebacks.forget(entry.submission.priority)
            for other in [other for other in self._parts if other[0] == entry.submission.priority]:
                self._parts[other] = [part for part in self._parts[other] if part.runs]
                for part in self._parts[other]:
                    part.forget_prompt()
                self._leads[other] = sum(part.in_advance for part in self._parts[other])
        if not any(each.placement.tenant == tenant for each in equals):
            self._periods[place] += 1
            if not entry.placement.resumed:
                self._comebacks.on_wait(place, self._work(*place))
                in_advance = sum(part.in_advance for part in self._parts.get(place, ()))
                self._leads[place] = max(self._leads.get(place, 0.0), in_advance)  # what is not used, it is given back

    def _work(self, priority: int, tenant: str) -> float:
        return sum(part.work() for part in self._parts.get((priority, tenant), ()))

    def read_work(self) -> None:
        """Let the queue count what was done."""
        self._queue.read_work()

    def late(self, after_s: float) -> Sequence[LateTenant]:
        """Return whose requests have waited for so long."""
        return self._queue.late(after_s)

    def _judge_preempted(self, model: str, submission: Submission, placement: Placement) -> None:
        """Judge that something was taken back for another tenant, which has less of the workers even then."""
        self._reached["taken back for another tenant"] += 1
        live = [each for each in self._live if each.request.model == model and each.session is not None]
        late = [(each.request.placement, [each.session]) for each in live if not each.gained]
        for entry in self._waiting(model):
            candidates = self._pool.candidates_to_place(model, entry.submission.lora.id, entry.placement)
            late.append((entry.placement, [*candidates]))
        places = [(each.request.placement.tenant, each.session) for each in live]
        if is_for_another(placement, places, late):
            return
        self._violate(f"{submission.request_id} was taken back, though no other tenant that waits has less")

    # In place of the workers.

    def try_submit(
        self, model: str, submission: Submission, listeners: Sequence[SlotListener], placement: Placement = NEW
    ) -> PlacedRequest | None:
        """Send a request to a worker with capacity; None where none has any."""
        free = {
            session: min(session.workload.free_capacity(session.breaker.half_open), _room(session, placement))
            for session in self._pool.candidates_to_place(model, submission.lora.id, placement)
        }
        waiting = self._waiting(model)
        barred = {(each, session) for each in waiting for session in free if _room(session, each.placement) <= 0}
        started = next((each for each in waiting if each.submission is submission), None)
        if not placement.resumed:
            prompt_tokens = 0 if placement.preempted else len(submission.prompt_token_ids)
            listeners = [ObservedSequence(each, 0 if index else prompt_tokens) for index, each in enumerate(listeners)]
        handle = self._pool.try_submit(model, submission, listeners, placement)
        if handle is not None:
            self._on_placed(handle.session, placement, listeners[0])
            sent = len(handle.listeners)
            choices = _choices(submission, listeners)
            self._journeys.on_sent(NODE.get(), handle.session.address, dict(zip(handle.slots, choices, strict=False)))
            if sent < len(choices):
                self._journeys.on_queued(choices[sent:], self._now())
            self._reached["request sent in parts"] += sent < len(listeners)
            if sent > free[handle.session]:
                self._violate(f"{sent} sequences of {submission.request_id} were sent to {free[handle.session]} places")
            if sent < min(len(listeners), max(free.values())):
                self._violate(f"only {sent} sequences of {submission.request_id} were sent")
            others = [each for each in waiting if each is not started and (each, handle.session) not in barred]
            others = [each for each in others if _could_have_gone(each, handle, submission)]
            own = not placement.resumed, submission.priority
            if started is not None:
                self._on_started(started, others, len(others) + 1 == len(waiting))
                if not placement.resumed:
                    place = submission.priority, placement.tenant
                    may_return = sum(part.may_return for part in self._parts.get(place, ()))
                    self._comebacks.on_start(place, self._work(*place), may_return)
            elif not self._queue._checks_soon and [each for each in others if _class(each) <= own]:
                # If it checks soon, what waits is looked at in this very turn.
                self._violate(f"{submission.request_id} was sent past {len(others)} queued requests")
            if not placement.resumed:
                place = submission.priority, placement.tenant
                self._parts[place].append(ObservedPart(handle, placement.weight))
        return handle

    def candidates_to_place(self, model: str, adapter_id: int, placement: Placement) -> Sequence[WorkerSession]:
        """Return the workers that may take a request."""
        return self._pool.candidates_to_place(model, adapter_id, placement)

    def has_room_for_prompt(self, model: str, adapter_id: int, placement: Placement) -> bool:
        """Return whether a worker may take another prompt of its tenant."""
        return self._pool.has_room_for_prompt(model, adapter_id, placement)

    def scarce_needs(self, model: str, submission: Submission) -> frozenset[str]:
        """Return what a request needs that not every worker has."""
        return self._pool.scarce_needs(model, submission)

    def free_capacity(
        self, model: str, adapter_id: int = 0, revision: ModelRevision | None = None, seeded_noise: str = ""
    ) -> int:
        """Return what the pool does."""
        return self._pool.free_capacity(model, adapter_id, revision, seeded_noise)

    def usual_queue(self, model: str) -> int:
        """Return how many sequences may wait for the workers."""
        return self._pool.usual_queue(model)

    def unavailable_reason(self, model: str, adapter_id: int = 0, revision: ModelRevision | None = None) -> str:
        """Return why no worker can take a request."""
        return self._pool.unavailable_reason(model, adapter_id, revision)

    def stale_reason(self, model: str, limits: WeightLimits) -> str:
        """Return why no worker has weights that are new enough."""
        return self._pool.stale_reason(model, limits)

    def _on_started(self, entry: QueuedRequest, others: Sequence[QueuedRequest], alike: bool) -> None:
        """Judge the start of sequences of a queued request before `others` of its adapter; `alike`: all have it."""
        name = entry.submission.request_id
        if first := [each for each in others if _class(each) < _class(entry)]:
            self._violate(f"{name} was sent before {len(first)} requests that are to be first")
        equals = [each for each in others if _class(each) == _class(entry)]
        own = [each for each in equals if each.placement.tenant == entry.placement.tenant]
        if any(self._arrived[each] < self._arrived[entry] for each in own):
            self._violate(f"{name} was sent before earlier requests of its tenant")
        if not alike:
            self._rivalries.clear()
        elif not entry.placement.resumed:
            self._judge_shares(entry, [each for each in equals if each not in own])

    def _judge_shares(self, entry: QueuedRequest, equals: Sequence[QueuedRequest]) -> None:
        priority, tenant = entry.submission.priority, entry.placement.tenant
        for rival in dict.fromkeys(each.placement.tenant for each in equals):
            self._reached["contest of tenants"] += 1
            one, other = sorted((tenant, rival))
            periods = self._periods[priority, one], self._periods[priority, other]
            rivalry = self._rivalries.get((priority, one, other))
            if rivalry is None or rivalry.periods != periods:
                rivalry = self._rivalries[priority, one, other] = _Rivalry(periods)
            lead = self._work(priority, one) - self._work(priority, other)
            excess = rivalry.started(lead, tenant == one)
            if excess > _ROUNDING:
                self._violate(f"{tenant} was served before {rival}, though it is {excess:.0f} tokens ahead")
            self._judge_comeback(priority, tenant, rival)

    def _judge_comeback(self, priority: int, tenant: str, rival: str) -> None:
        """Judge that a tenant may not catch up on what it left to others, for which it had nothing queued."""
        place, comebacks = (priority, tenant), self._comebacks
        self._reached["contest after idleness"] += comebacks.has_come_back(place, rival)
        excess = comebacks.excess(place, self._work(*place), rival, self._work(priority, rival))
        excess -= self._leads.get((priority, rival), 0.0)
        if excess > _ROUNDING:
            self._violate(f"{tenant} came back, and has got {excess:.0f} tokens more than {rival}, which waits")
