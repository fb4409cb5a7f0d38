"""The admission queue in front of the pool: dispatches a request at once if a worker has capacity, else queues it."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from tokenwire.coordinator.fleet.admission.expected_models import ExpectedModels
from tokenwire.coordinator.fleet.admission.fair_queue import FairQueue, QueueEntry
from tokenwire.coordinator.fleet.admission.settings import LEAST_QUEUE, AdmissionSettings, Rejection
from tokenwire.coordinator.fleet.admission.throughput import ThroughputEstimate
from tokenwire.coordinator.fleet.request_handle import NEW, Fleet, Placement, RequestHandle
from tokenwire.coordinator.fleet.slots import SlotListener, fail_listener
from tokenwire.errors import EngineFailed, Overloaded, TokenwireError, Unavailable, reply_error
from tokenwire.for_each import for_each
from tokenwire.v1 import inference_pb2 as pb

log = logging.getLogger(__name__)

_POLL_S = 0.05
"""Requests of other coordinators end without notice to this one, so a queue polls the workers' capacity."""
_RETRY_AFTER_S = 1.0


class Workers(Fleet, Protocol):
    """What the queue needs of the workers; see WorkerPool."""

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Register a callback for whenever a worker may have gained capacity."""

    def has_capacity(self, model: str, adapter_id: int = 0) -> bool:
        """Return whether a worker of a model could start one more sequence at once."""

    def capacity(self, model: str) -> int:
        """Return the maximum sequences that the workers of a model run at a time."""

    def absence(self, model: str, adapter_id: int = 0) -> str:
        """Return why no worker can take a request for a model; empty when one can."""


class QueuedRequest:
    """The handle of a queued request, then of its submission."""

    __slots__ = ("_remove", "_started", "timer")

    def __init__(self, remove: Callable[[], None]) -> None:
        self._remove = remove
        self._started: RequestHandle | None = None
        self.timer: asyncio.TimerHandle | None = None

    def start(self, submission: RequestHandle) -> None:
        """Record its dispatch to a worker."""
        self._started = submission

    def abort(self) -> None:
        """Remove it from the queue, or abort it on its worker."""
        if self._started is not None:
            self._started.abort()
        else:
            self._remove()

    def explain(self) -> str:
        """Return which worker has it; empty while queued."""
        return "" if self._started is None else self._started.explain()


class AdmissionQueue:
    """Holds requests while no worker is ready or none has capacity, in one fair queue for each model."""

    def __init__(self, workers: Workers, settings: AdmissionSettings, expected: ExpectedModels | None = None) -> None:
        """`expected` counts the requests held for models that no worker has announced yet."""
        self._workers = workers
        self._settings = settings
        self._expected = expected or ExpectedModels()
        self._rejections: Counter[tuple[str, Rejection]] = Counter()
        self._queues: dict[str, FairQueue] = {}
        self._throughputs: dict[str, ThroughputEstimate] = {}
        self._waiting: dict[QueueEntry, QueuedRequest] = {}
        self._check: asyncio.Handle | None = None
        self._checks_soon = False
        workers.subscribe(self._changed)

    def lengths(self) -> Mapping[str, tuple[int, int]]:
        """Return the queued requests and sequences of each model with a queue and of each expected model."""
        lengths = {name: (self._expected.waiting[name],) * 2 for name in self._expected.unknown()}
        return lengths | {model: (queue.requests, queue.sequences) for model, queue in self._queues.items()}

    @property
    def rejections(self) -> Counter[tuple[str, Rejection]]:
        """Rejected requests by model and reason."""
        return self._rejections + self._expected.rejections

    @property
    def waiting_requests(self) -> int:
        """The number of queued requests."""
        return len(self._waiting)

    def check_open(self, model: str, adapter_id: int) -> None:
        """Check that one more request would be let in, before anything is done for it. Raises as `submit`."""
        line = self._queues.get(model)
        if line is not None and line.waits(adapter_id):
            self._check_length(model, line, adapter_id, sequences=1)

    def submit(
        self, model: str, submit: pb.Submit, listeners: Sequence[SlotListener], placement: Placement = NEW
    ) -> RequestHandle:
        """Send a request to a worker, or let it wait. Raises Overloaded when the line is full, or Unavailable."""
        line = self._queues.get(model) or FairQueue()
        if not line.waits(submit.lora.id) and self._workers.has_capacity(model, submit.lora.id):
            return self._send(model, submit, listeners, placement)
        if not (placement.resumed or placement.joins):
            self._check_length(model, line, submit.lora.id, len(listeners))
        self._queues[model] = line
        return self._wait(model, line, line.add(submit, listeners, placement))

    def end(self, request_ids: Collection[str] | None) -> int:
        """Abort queued requests by their ids, None: all; return the number of their sequences."""
        found = [
            (entry, waiting)
            for entry, waiting in self._waiting.items()
            if request_ids is None or entry.submit.request_id in request_ids
        ]
        for entry, waiting in found:
            waiting.abort()
            for_each(
                entry.listeners,
                lambda listener: listener.step([], pb.Finish(reason=pb.FINISH_REASON_ABORT)),
                lambda listener, error: listener.fail(reply_error(error)),
            )
        return sum(entry.sequences for entry, _ in found)

    # Enqueueing.

    def _check_length(self, model: str, line: FairQueue, adapter_id: int, sequences: int) -> None:
        limit = self._settings.max_queue
        if limit is None:
            limit = max(LEAST_QUEUE, self._workers.capacity(model))
        # One that is larger than the whole line gets in when nobody else is there: else it never would.
        if limit and (not line.sequences or line.sequences + sequences <= limit) and self._has_memory():
            return
        absence = self._workers.absence(model, adapter_id)
        self._rejections[model, "no_worker" if absence else "full"] += 1
        if absence:
            raise Unavailable(absence, retry_after_s=_RETRY_AFTER_S)
        wait_s = self._throughput(model).wait_s(line.sequences + sequences)
        ahead = f", and {line.requests} requests wait already" if line.requests else ""
        message = f"All workers of {model} are busy{ahead}. Try again in {wait_s} s."
        raise Overloaded(message, retry_after_s=wait_s)

    def _has_memory(self) -> bool:
        return sum(queue.size_bytes for queue in self._queues.values()) < self._settings.max_queue_bytes

    def _wait(self, model: str, line: FairQueue, entry: QueueEntry) -> QueuedRequest:
        waiting = self._waiting[entry] = QueuedRequest(lambda: self._remove(model, line, entry))
        loop = asyncio.get_running_loop()
        waiting.timer = loop.call_later(self._settings.queue_timeout_s, self._give_up, model, line, entry)
        self._check_later()
        return waiting

    # Dequeueing.

    def _changed(self) -> None:
        """Schedule dispatching for the end of the loop's iteration, outside the caller's own work."""
        if self._waiting and not self._checks_soon:
            if self._check is not None:
                self._check.cancel()
            self._check = asyncio.get_running_loop().call_soon(self._move_all)
            self._checks_soon = True

    def _check_later(self) -> None:
        if self._check is None and self._waiting:
            self._check = asyncio.get_running_loop().call_later(_POLL_S, self._move_all)

    def _move_all(self) -> None:
        self._check, self._checks_soon = None, False
        for_each(self._queues.items(), lambda item: self._move(*item))
        self._check_later()

    def _move(self, model: str, line: FairQueue) -> None:
        while (entry := self._next(model, line)) is not None:
            self._start(model, line, entry)

    def _next(self, model: str, line: FairQueue) -> QueueEntry | None:
        """Return the first entry for which a worker has capacity."""
        return next((entry for entry in line.heads() if self._workers.has_capacity(model, entry.submit.lora.id)), None)

    def _start(self, model: str, line: FairQueue, entry: QueueEntry) -> None:
        waiting = self._waiting[entry]
        self._remove(model, line, entry, started=True)
        try:
            waiting.start(self._send(model, entry.submit, entry.listeners, entry.placement))
        except Exception as error:
            # This request fails; those behind it are still dispatched.
            log.log(logging.INFO if isinstance(error, TokenwireError) else logging.ERROR, "not sent", exc_info=error)
            told = error if isinstance(error, TokenwireError) else EngineFailed(f"The request was not sent: {error}")
            for listener in entry.listeners:
                fail_listener(listener, told)

    def _send(
        self, model: str, submit: pb.Submit, listeners: Sequence[SlotListener], placement: Placement
    ) -> RequestHandle:
        submission = self._workers.submit(model, submit, listeners, placement)
        self._throughput(model).started(len(listeners))
        return submission

    def _give_up(self, model: str, line: FairQueue, entry: QueueEntry) -> None:
        self._remove(model, line, entry)
        self._rejections[model, "timeout"] += 1
        absence = self._workers.absence(model, entry.submit.lora.id)
        timed_out = f"No worker had capacity for this request within {self._settings.queue_timeout_s:g} s."
        error = Unavailable(absence or timed_out, retry_after_s=self._throughput(model).wait_s(line.sequences))
        for listener in entry.listeners:
            fail_listener(listener, error)

    def _remove(self, model: str, line: FairQueue, entry: QueueEntry, started: bool = False) -> None:
        waiting = self._waiting.pop(entry, None)
        if waiting is None:
            return
        if waiting.timer is not None:
            waiting.timer.cancel()
        line.remove(entry, started)
        if not line.requests:
            del self._queues[model]

    def _throughput(self, model: str) -> ThroughputEstimate:
        return self._throughputs.setdefault(model, ThroughputEstimate())
