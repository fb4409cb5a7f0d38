"""The admission queue in front of the pool: places a request at once if a worker has capacity, else queues it.

One file, since admitting, refusing and placing all decide about the same few requests.
"""

import asyncio
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

from tokenwire.coordinator.fleet.admission.expected_models import ExpectedModels
from tokenwire.coordinator.fleet.admission.fair_bound import FairBound
from tokenwire.coordinator.fleet.admission.fair_queue import FairQueue
from tokenwire.coordinator.fleet.admission.queued_request import PartHandle, QueuedRequest
from tokenwire.coordinator.fleet.admission.settings import LEAST_QUEUE, AdmissionSettings, Rejection
from tokenwire.coordinator.fleet.admission.share_exchange import SharedClass
from tokenwire.coordinator.fleet.admission.shares import TenantShare
from tokenwire.coordinator.fleet.admission.throughput import ThroughputEstimate
from tokenwire.coordinator.fleet.placed_memory import PlacedMemory
from tokenwire.coordinator.fleet.pool_listener import PoolListener
from tokenwire.coordinator.fleet.request_handle import NEW, LateTenant, Placement, SubmissionHandle
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.coordinator.fleet.slots import SlotListener, fail_listener
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.errors import EngineFailed, Overloaded, TokenwireError, Unavailable, mib, reply_error
from tokenwire.process.for_each import for_each
from tokenwire.protocol.model_revision import ModelRevision
from tokenwire.protocol.weight_limits import WeightLimits
from tokenwire.v1 import inference_pb2 as pb

log = logging.getLogger(__name__)

_POLL_S = 0.05
"""This coordinator gets no event when requests of others end, so a queue polls the workers' capacity."""
_RETRY_AFTER_S = 1.0


class AdmissionWorkers(Protocol):
    """What the queue needs of the workers; see WorkerPool."""

    def subscribe(self, listener: PoolListener) -> None:
        """Add a listener to changes of the workers."""

    def try_submit(
        self, model: str, submission: Submission, listeners: Sequence[SlotListener], placement: Placement = NEW
    ) -> PartHandle | None:
        """Send as many sequences of a request, from the first on, as a worker has capacity for; None if for none."""

    def candidates_to_place(self, model: str, adapter_id: int, placement: Placement) -> Sequence[WorkerSession]:
        """Return the workers that may take a request, whether they have capacity or not."""

    def has_room_for_prompt(self, model: str, adapter_id: int, placement: Placement) -> bool:
        """Return whether a worker that may take a request has few prompts of its tenant, or there is none."""

    def free_capacity(
        self, model: str, adapter_id: int = 0, revision: ModelRevision | None = None, seeded_noise: str = ""
    ) -> int:
        """Return the free capacity of a model's workers (of a revision, with a noise), in sequences."""

    def scarce_needs(self, model: str, submission: Submission) -> frozenset[str]:
        """Return what a request needs that not every worker of its model has."""

    def usual_queue(self, model: str) -> int:
        """Return how many sequences may wait for the workers of a model."""

    def unavailable_reason(self, model: str, adapter_id: int = 0, revision: ModelRevision | None = None) -> str:
        """Return why no worker can take a request for a model (and revision); empty when one can."""

    def stale_reason(self, model: str, limits: WeightLimits) -> str:
        """Return why no worker that takes requests for a model has weights within limits; empty when one has."""


class AdmissionQueue(PoolListener):
    """Holds requests while no worker is ready or none has capacity, in one fair queue for each model."""

    def __init__(
        self, workers: AdmissionWorkers, settings: AdmissionSettings, expected: ExpectedModels | None = None
    ) -> None:
        """`expected` counts the requests held for models that no worker has announced yet."""
        self._workers = workers
        self._settings = settings
        self._expected = expected or ExpectedModels()
        self._rejections: Counter[tuple[str, Rejection]] = Counter()
        self._requests = 0
        """Queued requests of all models."""
        self._queues: dict[str, FairQueue] = {}
        """By model."""
        self._memory = FairBound(lambda entry: entry.size_bytes)
        """Of all queued requests."""
        self.placed_memory = PlacedMemory(settings.max_running_bytes, self.on_capacity)
        """Of all requests that workers have."""
        self._throughputs = defaultdict[str, ThroughputEstimate](ThroughputEstimate)
        self._check: asyncio.Handle | None = None
        self._checks_soon = False
        self._prompts_wait = False
        """Whether a tenant's wait until others of its own are computed."""
        workers.subscribe(self)

    def lengths(self) -> Mapping[str, tuple[int, int]]:
        """Return the queued requests and sequences of each model with a queue and of each expected model."""
        lengths = {name: (self._expected.waiting[name],) * 2 for name in self._expected.unknown()}
        queues = self._queues.items()
        return lengths | {model: (queue.requests, queue.places.total) for model, queue in queues if queue.requests}

    @property
    def rejections(self) -> Counter[tuple[str, Rejection]]:
        """Rejected requests by model and reason."""
        return self._rejections + self._expected.rejections

    def check_open(self, model: str, adapter_id: int, placement: Placement = NEW, sequences: int = 1) -> None:
        """Check that one more request would be admitted, before any work on it. Raises the errors of `submit`."""
        queue = self._queues.get(model)
        if queue is not None and queue.waits(adapter_id):
            self._check_room(model, queue, adapter_id, placement, sequences)

    def submit(
        self, model: str, submission: Submission, listeners: Sequence[SlotListener], placement: Placement = NEW
    ) -> SubmissionHandle:
        """Send a request to workers, and queue what they have no room for. Raises Overloaded when the queue is full,
        or Unavailable; InvalidRequest for one that is too large.
        """
        queue = self._queues.get(model)
        if queue is None:
            queue = self._queues[model] = FairQueue()
        share = queue.share_of(placement, submission.priority)
        entry = QueuedRequest(model, submission, listeners, placement, share, on_abort=self._remove)
        if not queue.waits(submission.lora.id, placement.revision):
            part = self._try_send(entry)
            if part is not None:
                if queue.requests and share is not None:
                    share.read()
                queue.start(entry, part)
                if not entry.listeners:
                    return entry
        self.placed_memory.check(placement.memory)
        if not entry.may_be_refused:
            self._enqueue(queue, entry)
        else:
            self._check_room(model, queue, submission.lora.id, placement, entry.sequences, entry.size_bytes)
            self._enqueue(queue, entry)
            self._refuse_excess(queue, entry)
        return entry

    def abort(self, request_ids: Collection[str] | None) -> int:
        """Abort queued requests by their ids, None: all; return the number of their sequences."""
        queued = (entry for queue in self._queues.values() for entry in queue)
        found = [entry for entry in queued if request_ids is None or entry.submission.request_id in request_ids]
        for entry in found:
            self._remove(entry)
            for_each(
                entry.listeners,
                lambda listener: listener.step([], pb.Finish(reason=pb.FINISH_REASON_ABORT)),
                lambda listener, error: listener.fail(reply_error(error)),
            )
        return sum(entry.sequences for entry in found)

    def read_work(self) -> None:
        """Count what sequences have done, before some of them go on elsewhere."""
        for queue in self._queues.values():
            queue.read_work()

    def shares(self) -> Iterator[SharedClass]:
        """Yield the shares of each model and priority."""
        for model, queue in self._queues.items():
            for priority, shares in queue.shares.items():
                yield SharedClass(model, priority, shares)

    def late(self, after_s: float) -> list[LateTenant]:
        """Return the tenants whose requests are next and have waited for so long."""
        since = time.monotonic() - after_s
        waiting = [queue for queue in self._queues.values() if queue.requests]
        for queue in waiting:
            queue.read_work()
        heads = ((queue, head) for queue in waiting for head in queue.heads(self._may_go))
        heads = ((queue, head) for queue, head in heads if head.waits_since < since)
        allows = self.placed_memory.allows  # for memory no worker can make room
        return [self._late_tenant(queue, head) for queue, head in heads if allows(head.placement.memory)]

    def _late_tenant(self, queue: FairQueue, head: QueuedRequest) -> LateTenant:
        placement = head.placement
        return LateTenant(
            placement,
            head.submission.priority,
            queue.places.size_of(placement.tenant),
            self._workers.candidates_to_place(head.model, head.submission.lora.id, placement),
            partial(queue.is_behind, head),
        )

    # Enqueueing.

    def _check_room(
        self,
        model: str,
        queue: FairQueue,
        adapter_id: int,
        placement: Placement,
        sequences: int = 1,
        size_bytes: int | None = None,
    ) -> None:
        limit = self._limit(model)
        if limit <= 0 or not queue.places.admits(placement, sequences, limit):
            raise self._rejection(model, adapter_id, placement, sequences, self._no_places(model, sequences))
        if not self._memory.admits(placement, size_bytes or 1, self._settings.max_queue_bytes):
            raise self._rejection(model, adapter_id, placement, sequences, self._no_memory(size_bytes))

    def _limit(self, model: str) -> int:
        limit = self._settings.max_queue
        return max(LEAST_QUEUE, self._workers.usual_queue(model)) if limit is None else limit

    def _rejection(
        self, model: str, adapter_id: int, placement: Placement, sequences: int, why: str
    ) -> Unavailable | Overloaded:
        """Return the error for a request that the queue does not take, and count it."""
        absence = self._workers.unavailable_reason(model, adapter_id)
        self._rejections[model, "no_worker" if absence else "full"] += 1
        if absence:
            return Unavailable(absence, retry_after_s=_RETRY_AFTER_S)
        wait_s = self._wait_s(model, self._queues[model], placement, sequences)
        message = f"All workers of {model} are busy, and {why}. Try again in {wait_s} s."
        return Overloaded(message, retry_after_s=wait_s)

    def _no_places(self, model: str, sequences: int) -> str:
        queued = f"{self._queues[model].places.total} of at most {self._limit(model)} sequences (--max-queue)"
        return f"its queue has {queued}: no room for {sequences} more"

    def _no_memory(self, size_bytes: int | None) -> str:
        taken = f"{mib(self._memory.total)} of at most {mib(self._settings.max_queue_bytes)} (--max-queue-mb)"
        return f"all queued requests take {taken}: no room for {'another' if size_bytes is None else mib(size_bytes)}"

    def _wait_s(self, model: str, queue: FairQueue, placement: Placement, sequences: int) -> int:
        """Return the seconds until the workers have started so many sequences more of a tenant, at fair shares."""
        return self._throughputs[model].wait_s(queue.places.fair_total(placement, sequences))

    def _enqueue(self, queue: FairQueue, entry: QueuedRequest) -> None:
        claim = entry.placement.memory
        entry.waits_for_memory = claim is not None and claim.is_large and claim.holder is None
        entry.needs = self._workers.scarce_needs(entry.model, entry.submission)
        queue.add(entry)
        self._requests += 1
        self.placed_memory.wait(entry.waits_for_memory)
        self._memory.add(entry)
        self._start_timer(entry)
        # Those before it may wait for what it does not.
        if queue.is_divided or self.placed_memory.has_refused or self._prompts_wait or not self._has_prompt_room(entry):
            self.on_capacity()
        self._check_later()

    def _start_timer(self, entry: QueuedRequest) -> None:
        if entry.timer is not None:
            entry.timer.cancel()
        entry.waits_since = time.monotonic()
        entry.timer = asyncio.get_running_loop().call_later(self._settings.queue_timeout_s, self._give_up, entry)

    def _refuse_excess(self, queue: FairQueue, admitted: QueuedRequest) -> None:
        """Refuse the newest requests of who takes most, as far as one was admitted beyond a bound."""
        placement, limit = admitted.placement, self._limit(admitted.model)
        while admitted.queued and (refused := queue.places.to_refuse(placement, limit)):
            self._remove(refused)
            self._refuse(refused, self._no_places(refused.model, refused.sequences))
        while admitted.queued and (refused := self._memory.to_refuse(placement, self._settings.max_queue_bytes)):
            self._remove(refused)
            self._refuse(refused, self._no_memory(refused.size_bytes))

    def _refuse(self, entry: QueuedRequest, why: str) -> None:
        error = self._rejection(entry.model, entry.submission.lora.id, entry.placement, entry.sequences, why)
        for listener in entry.listeners:
            fail_listener(listener, error)

    # Dequeueing.

    def on_capacity(self) -> None:
        """Schedule placement for the end of the loop's iteration, outside the caller's own work."""
        if self._requests and not self._checks_soon:
            if self._check is not None:
                self._check.cancel()
            self._check = asyncio.get_running_loop().call_soon(self._move_all)
            self._checks_soon = True

    def _check_later(self) -> None:
        if self._check is None and self._requests:
            self._check = asyncio.get_running_loop().call_later(_POLL_S, self._move_all)

    def _move_all(self) -> None:
        self._check, self._checks_soon, self._prompts_wait = None, False, False
        for_each(self._queues.values(), self._move)
        self._check_later()

    def _move(self, queue: FairQueue) -> None:
        """Place the first entry for which a worker has capacity, as long as there is one."""
        if queue.requests:
            queue.read_work()
        while queue.requests and any(self._start(entry) for entry in queue.heads(self._may_go)):
            pass

    def _may_go(self, entry: QueuedRequest) -> bool:
        """Return whether a request is not to wait until others of its tenant give memory back, or are computed."""
        return self.placed_memory.is_within_share(entry.placement.memory) and self._has_prompt_room(entry)

    def _has_prompt_room(self, entry: QueuedRequest) -> bool:
        placement = entry.placement
        if not placement.shared or placement.resumed:
            return True
        has_room = self._workers.has_room_for_prompt(entry.model, entry.submission.lora.id, placement)
        self._prompts_wait |= not has_room
        return has_room

    def _start(self, entry: QueuedRequest) -> bool:
        """Place as much of a request as a worker has capacity for; return whether any was placed, or it failed."""
        try:
            part = self._try_send(entry)
        except Exception as error:
            # This request fails; those behind it are still placed.
            level = logging.INFO if isinstance(error, TokenwireError) else logging.ERROR
            log.log(level, "request %s for %s was not sent", entry.submission.request_id, entry.model, exc_info=error)
            reply = error if isinstance(error, TokenwireError) else EngineFailed(f"The request was not sent: {error}")
            self._remove(entry)
            for listener in entry.listeners:
                fail_listener(listener, reply)
            return True
        if part is None:
            return False
        self._memory.remove(entry)
        self._queues[entry.model].start(entry, part)
        self._memory.add(entry)
        if entry.listeners:
            self._start_timer(entry)  # its client sees progress
        else:
            self._remove(entry)
        return True

    def _try_send(self, entry: QueuedRequest) -> PartHandle | None:
        claim = entry.placement.memory
        if not self.placed_memory.allows(claim):
            return None
        listeners, share = entry.listeners, entry.share
        if share is not None and share.shares.rivals.exist:
            listeners = self._to_send(entry, share)
            if not listeners:
                return None
        part = self._workers.try_submit(entry.model, entry.submission, listeners, entry.placement)
        if part is not None:
            if claim is not None:
                self.placed_memory.take(claim)
            self._throughputs[entry.model].started(len(part.listeners))
        return part

    def _to_send(self, entry: QueuedRequest, share: TenantShare) -> Sequence[SlotListener]:
        """Return the sequences for which there is room besides places that are for tenants of other processes."""
        placement, adapter_id = entry.placement, entry.submission.lora.id
        free = self._workers.free_capacity(entry.model, adapter_id, placement.revision, placement.seeded_noise)
        room = share.room(free, entry.sequences, entry.tokens(1))
        return entry.listeners[:room] if free > 0 else entry.listeners  # without any, that is the workers' answer

    def _give_up(self, entry: QueuedRequest) -> None:
        model, queue = entry.model, self._queues[entry.model]
        absence = self._workers.unavailable_reason(model, entry.submission.lora.id, entry.placement.revision)
        if entry.placement.preempted and not absence:
            self._start_timer(entry)
            return
        self._remove(entry)
        self._rejections[model, "timeout"] += 1
        limits = entry.placement.weights
        if not absence and limits is not None:
            absence = self._workers.stale_reason(model, limits)
        lacking, claim = "No worker had capacity for this request", entry.placement.memory
        if entry.placement.keeps_place:
            lacking += ", or its tenant keeps as many places as it may with replies that cannot be taken back,"
        if claim is not None and not self.placed_memory.allows(claim):
            lacking = f"{self.placed_memory.bound_of(claim)} had no room for this request's {mib(claim.size_bytes)}"
        timed_out = f"{lacking} within {self._settings.queue_timeout_s:g} s (--queue-timeout)."
        wait_s = self._wait_s(model, queue, entry.placement, entry.sequences)
        error = Unavailable(absence or timed_out, retry_after_s=wait_s)
        for listener in entry.listeners:
            fail_listener(listener, error)

    def _remove(self, entry: QueuedRequest) -> None:
        if not entry.queued:
            return
        if entry.timer is not None:
            entry.timer.cancel()
        self._queues[entry.model].remove(entry)
        self._requests -= 1
        self.placed_memory.wait(-entry.waits_for_memory)
        self._memory.remove(entry)
