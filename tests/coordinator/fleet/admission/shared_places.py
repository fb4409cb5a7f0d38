"""Two processes, each with a queue, in front of places on workers that both use."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.share_ledger import LedgerStore, ShareLedger
from tests.clock import Clock
from tests.coordinator.fleet.admission.fakes import CapacityWorkers, QueuedPart, enqueue
from tests.workers import Listener
from tokenwire.coordinator.fleet.admission.queue import AdmissionQueue
from tokenwire.coordinator.fleet.admission.settings import AdmissionSettings
from tokenwire.coordinator.fleet.admission.share_exchange import ShareExchange
from tokenwire.coordinator.fleet.request_handle import NEW, Placement, RequestHandle
from tokenwire.coordinator.fleet.slots import SlotListener
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.v1 import inference_pb2 as pb

STEP_TOKENS = 8


@dataclass
class SharedPlaces:
    """Places on workers that several processes use."""

    free: int


class ProcessWorkers(CapacityWorkers):
    """The workers as one process sees them."""

    def __init__(self, places: SharedPlaces) -> None:
        super().__init__()
        self.places = places

    def free_capacity(self, *of: object, **also: object) -> int:
        """Return the places that are free for all."""
        return self.places.free

    def try_submit(
        self, model: str, submission: Submission, listeners: Sequence[SlotListener], placement: Placement = NEW
    ) -> QueuedPart | None:
        """Take places."""
        self.capacities[0] = self.places.free
        part = super().try_submit(model, submission, listeners, placement)
        self.places.free = self.capacities[0]
        return part


@dataclass
class Load:
    """The requests of a tenant in one process, of which so many are in progress at any time."""

    process: int
    tenant: str
    weight: int
    prompt_tokens: int
    reply_tokens: int
    requests: int
    priority: int = 0


@dataclass
class LoadedRequest:
    """One request of a load."""

    load: Load
    handle: RequestHandle
    listener: Listener


class TwoProcesses:
    """Two processes in front of the same places, of which the first always looks first."""

    def __init__(self, places: int, stored: bool = True) -> None:
        self.clock = Clock()
        ledger = ShareLedger(self.clock)
        self.places = SharedPlaces(places)
        self.workers = [ProcessWorkers(self.places) for _ in range(2)]
        settings = AdmissionSettings(max_queue=1000)
        self.queues = [AdmissionQueue(workers, settings) for workers in self.workers]
        self.exchanges = [
            ShareExchange(LedgerStore(ledger, f"process {number}"), queue.shares)
            for number, queue in enumerate(self.queues)
            if stored
        ]
        self.served = Counter[str]()
        self.clients: list[LoadedRequest] = []

    def send(self, load: Load) -> None:
        """Send a request of a load."""
        placement = Placement(tenant=load.tenant, weight=load.weight)
        handle, listener = enqueue(
            self.queues[load.process], "", placement, priority=load.priority, tokens=load.prompt_tokens
        )
        self.clients.append(LoadedRequest(load, handle, listener))

    async def run(self, loads: Sequence[Load], steps: int) -> Counter[str]:
        """Serve loads for so many steps; return the tokens that each tenant got: of prompts and of replies."""
        for load in loads:
            for _ in range(load.requests):
                self.send(load)
        for step in range(steps):
            self.clock.now += 0.02
            if step % 5 == 0:
                for exchange in self.exchanges:
                    await exchange.exchange()
            self._generate()
            for workers in self.workers:
                await workers.add_capacity(0)
        return self.served

    def _generate(self) -> None:
        placed = {part.listeners[0] for workers in self.workers for part in workers.parts}
        clients, self.clients = self.clients, []
        ended = [client for client in clients if client.listener in placed and self._ends(client)]
        self.clients += [client for client in clients if client not in ended]
        for client in ended:
            self.places.free += 1
            client.handle.abort()
        for client in ended:
            self.send(client.load)

    def _ends(self, client: LoadedRequest) -> bool:
        load, gained = client.load, client.listener.gained
        self.served[load.tenant] += STEP_TOKENS + (0 if gained else load.prompt_tokens)
        ends = gained + STEP_TOKENS >= load.reply_tokens
        client.listener.step([1] * STEP_TOKENS, pb.Finish(reason=pb.FINISH_REASON_LENGTH) if ends else None)
        return ends

    def stop(self) -> None:
        """Abort all."""
        for queue in self.queues:
            queue.abort(None)
