"""Workers that can be stopped, with the layers in front of them, shared by tests of failover."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tests.workers import PROMPT, Listener, accept, running_worker, unix_address, until
from tokenwire.coordinator.fleet.admission.queue import AdmissionQueue
from tokenwire.coordinator.fleet.admission.settings import AdmissionSettings
from tokenwire.coordinator.fleet.desired_state import DesiredStates
from tokenwire.coordinator.fleet.failover.failover import Failover
from tokenwire.coordinator.fleet.failover.settings import FailoverSettings
from tokenwire.coordinator.fleet.pool import WorkerPool
from tokenwire.coordinator.fleet.request_handle import RequestHandle
from tokenwire.coordinator.fleet.session_listener import SessionState
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.server import WorkerServer

NAMES = ("one", "two", "three")


class Cluster:
    """Workers that can be stopped, and the layers in front of them."""

    def __init__(
        self,
        folder: Path,
        settings: FailoverSettings,
        queue_timeout_s: float = 10.0,
        desired: DesiredStates | None = None,
    ) -> None:
        self._folder = folder
        self._workers: dict[str, tuple[WorkerServer, AsyncExitStack]] = {}
        self.pool = WorkerPool("test", accept, desired)
        queue = AdmissionQueue(self.pool, AdmissionSettings(queue_timeout_s=queue_timeout_s))
        self.failover = Failover(queue, settings, self.pool)
        self.pool.subscribe(self.failover)

    def connect(self) -> None:
        """Start connecting to all workers, running or not."""
        self.pool.update(unix_address(self._folder, name) for name in NAMES)

    async def start(self, name: str, **simulation: Any) -> WorkerServer:
        """Start a worker and wait until it takes requests."""
        stack = AsyncExitStack()
        worker = await stack.enter_async_context(running_worker(unix_address(self._folder, name), **simulation))
        self._workers[name] = worker, stack
        instance = worker.welcome().instance_id
        await until(
            lambda: any(s.instance_id == instance and s.state is SessionState.READY for s in self.pool.sessions)
        )
        return worker

    async def lose(self, name: str) -> None:
        """Stop a worker that has requests: its sessions end unannounced."""
        _, stack = self._workers.pop(name)
        await stack.aclose()

    def worker(self, name: str) -> WorkerServer:
        """Return a running worker."""
        return self._workers[name][0]

    def has(self, name: str) -> bool:
        """Return whether a worker has a request."""
        return self.worker(name).server_info().open_slots > 0

    async def holder(self) -> str:
        """Return the worker that has a request."""
        await until(lambda: any(map(self.has, self._workers)))
        return next(filter(self.has, self._workers))

    async def stop(self) -> None:
        """Stop everything."""
        self.failover.stop()
        await self.pool.stop()
        for name in list(self._workers):
            await self.lose(name)

    def send(self, n: int = 1, **sampling: Any) -> tuple[RequestHandle, list[Listener]]:
        """Submit a request."""
        listeners = [Listener() for _ in range(n)]
        return self.failover.submit("simulated", greedy_submit(**sampling), listeners), listeners

    async def undisturbed(self, **sampling: Any) -> list[int]:
        """Return the tokens of a request without a loss."""
        _, (listener,) = self.send(**sampling)
        await listener.ended.wait()
        assert listener.error is None
        return listener.token_ids


def greedy_submit(max_tokens: int = 120, **sampling: Any) -> Submission:
    """Return a request, by default a greedy one."""
    params = pb.SamplingParams(**{"temperature": 0.0, **sampling})
    return Submission(request_id="request", prompt_token_ids=PROMPT, sampling_params=params, max_tokens=max_tokens)


async def some_tokens(listener: Listener, count: int = 10) -> None:
    """Wait until a listener has some tokens."""
    await until(lambda: len(listener.token_ids) >= count)


SEEDED: dict[str, Any] = {"temperature": 1.0, "seed": 7}
