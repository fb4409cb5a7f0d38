"""Workers with a given capacity, and requests to a queue in front of them."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from tests.workers import Listener, accept, submission
from tokenwire.coordinator.fleet.admission.queue import AdmissionQueue
from tokenwire.coordinator.fleet.pool_listener import PoolListener
from tokenwire.coordinator.fleet.request_handle import NEW, Placement, RequestHandle
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.coordinator.fleet.slots import SlotListener
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.errors import Unavailable
from tokenwire.protocol.model_revision import ModelRevision
from tokenwire.protocol.weight_limits import WeightLimits
from tokenwire.v1 import inference_pb2 as pb

MODEL = "m"


RESUMED = Placement(resumed=True)


class QueuedPart:
    """A request on a worker."""

    def __init__(self, submission: Submission, listeners: Sequence[SlotListener]) -> None:
        self.request_id = submission.request_id
        self.submission = submission
        self.listeners = listeners
        self.session = WorkerSession("nowhere", "test", accept)
        self.aborted = False
        self.aborted_places: list[int] = []

    def abort(self) -> None:
        """Record the abort."""
        self.aborted = True

    def running(self) -> list[int]:
        """Return the places that have not ended."""
        listeners = [] if self.aborted else [*enumerate(self.listeners)]
        ended = {place for place, each in listeners if isinstance(each, Listener) and each.ended.is_set()}
        return [place for place, _ in listeners if place not in ended.union(self.aborted_places)]

    def abort_on(self, session: WorkerSession | None) -> None:
        """Record the abort if it has this session."""
        self.aborted |= session is self.session

    def abort_at(self, place: int) -> None:
        """Record the abort of one sequence."""
        self.aborted_places.append(place)

    def abort_one(self, listener: SlotListener) -> None:
        """Record the abort of one sequence."""
        self.abort_at([*self.listeners].index(listener))

    def explain(self) -> str:
        """Return where it is."""
        return "here"


class CapacityWorkers:
    """Workers with a given capacity for each adapter."""

    def __init__(self, free: int = 0, absence: str = "") -> None:
        self.capacities = {0: free}
        self.scarce: dict[str, frozenset[str]] = {}
        """What requests need that not every worker has, by their ids."""
        self.full_of_prompts: set[str] = set()
        """Tenants with many."""
        self.absent = absence
        self.worker = WorkerSession("nowhere", "test", accept)
        self.parts: list[QueuedPart] = []
        self._listener = PoolListener()

    @property
    def started(self) -> list[str]:
        """Ids of requests, in order of arrival."""
        return [part.request_id for part in self.parts]

    def subscribe(self, listener: PoolListener) -> None:
        """Set the listener."""
        self._listener = listener

    def candidates_to_place(self, model: str, adapter_id: int, placement: Placement) -> Sequence[WorkerSession]:
        """Return one worker."""
        return [self.worker]

    def has_room_for_prompt(self, model: str, adapter_id: int, placement: Placement) -> bool:
        """Return whether it was not set that this tenant's prompts are to wait."""
        return placement.tenant not in self.full_of_prompts

    def scarce_needs(self, model: str, submission: Submission) -> frozenset[str]:
        """Return what the test set."""
        return self.scarce.get(submission.request_id, frozenset())

    def usual_queue(self, model: str) -> int:
        """Return as many as run at a time."""
        return 20

    def free_capacity(
        self, model: str, adapter_id: int = 0, revision: ModelRevision | None = None, seeded_noise: str = ""
    ) -> int:
        """Return the capacity that is left."""
        return self.capacities.get(adapter_id, 0)

    def unavailable_reason(self, model: str, adapter_id: int = 0, revision: ModelRevision | None = None) -> str:
        """Return why there is no worker."""
        if adapter_id not in self.capacities:
            return f"no worker has adapter {adapter_id}"
        return self.absent if model == MODEL else ""

    def stale_reason(self, model: str, limits: WeightLimits) -> str:
        """Return that they have older weights than are wanted."""
        return f"no worker of {model} has weights within {limits}"

    def try_submit(
        self, model: str, submission: Submission, listeners: Sequence[SlotListener], placement: Placement = NEW
    ) -> QueuedPart | None:
        """Take as much of a request as there is capacity for."""
        capacity = self.capacities.get(submission.lora.id, 0)
        if capacity <= 0 or placement.tenant in self.full_of_prompts:
            return None
        if self.absent:
            raise Unavailable(self.absent)
        part = listeners[:capacity]
        self.capacities[submission.lora.id] -= len(part)
        self.parts.append(QueuedPart(submission, part))
        return self.parts[-1]

    async def add_capacity(self, sequences: int = 1, adapter_id: int = 0) -> None:
        """Add capacity, call back, and let the queue dispatch."""
        self.capacities[adapter_id] = self.capacities.get(adapter_id, 0) + sequences
        self._listener.on_capacity()
        await asyncio.sleep(0)
        await asyncio.sleep(0)


def enqueue(
    queue: AdmissionQueue,
    name: str,
    placement: Placement = NEW,
    n: int = 1,
    priority: int = 0,
    adapter_id: int = 0,
    tokens: int = 10,
) -> tuple[RequestHandle, Listener]:
    """Submit a request."""
    request = replace(
        submission(request_id=name),
        priority=priority,
        prompt_token_ids=[1] * tokens,
        lora=pb.LoraAdapter(id=adapter_id),
    )
    listeners = [Listener() for _ in range(n)]
    return queue.submit(MODEL, request, listeners, placement), listeners[0]
