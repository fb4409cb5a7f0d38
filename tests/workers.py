"""Workers in the test's process on Unix sockets: real ones with a simulated engine, and scripted ones."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from tokenwire.coordinator.fleet.placed_request import PlacedRequest
from tokenwire.coordinator.fleet.pool import WorkerPool
from tokenwire.coordinator.fleet.request_handle import NEW, Placement
from tokenwire.coordinator.fleet.session import FetchFiles, WorkerSession
from tokenwire.coordinator.fleet.slots import SlotListener
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.errors import TokenwireError
from tokenwire.peer_auth.grpc_options import SERVER
from tokenwire.protocol.version import MAJOR
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.v1 import inference_pb2_grpc
from tokenwire.worker.engine.interface import Engine
from tokenwire.worker.server import WorkerServer
from tokenwire.worker.settings import WorkerSettings
from tokenwire.worker.simulated_engine.engine import SimulatedEngine
from tokenwire.worker.simulated_engine.settings import SimulationSettings

PROMPT = list(range(65, 91))

SessionContext = grpc.aio.ServicerContext[pb.SessionRequest, pb.SessionResponse]
Script = Callable[[AsyncIterator[pb.SessionRequest], SessionContext], Awaitable[None]]


async def until(holds: Callable[[], bool], timeout_s: float = 10.0) -> None:
    """Poll until a condition holds that offers no event."""
    async with asyncio.timeout(timeout_s):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


async def accept(model: pb.Model, fetch: FetchFiles) -> None:
    """Accept any model."""


@asynccontextmanager
async def running_session(session: WorkerSession) -> AsyncIterator[WorkerSession]:
    """Run a session, connected or not."""
    running = asyncio.create_task(session.run())
    try:
        yield session
    finally:
        running.cancel()
        await asyncio.wait([running])


def submission(max_tokens: int = 5, request_id: str = "request") -> Submission:
    """Return a request."""
    return Submission(
        request_id=request_id,
        prompt_token_ids=PROMPT,
        max_tokens=max_tokens,
    )


def submit_message(max_tokens: int = 5, request_id: str = "request", slots: Sequence[int] = ()) -> pb.Submit:
    """Return a request as a worker gets it."""
    return submission(max_tokens, request_id).message(slots).submit


def send(
    pool: WorkerPool,
    submission: Submission,
    listeners: Sequence[SlotListener],
    model: str = "simulated",
    placement: Placement = NEW,
) -> PlacedRequest:
    """Submit a request to a worker, one of which must have free capacity."""
    placed = pool.try_submit(model, submission, listeners, placement)
    assert placed is not None, pool.unavailable_reason(model) or "no worker has free capacity"
    return placed


@asynccontextmanager
async def worker_around(engine: Engine, settings: WorkerSettings) -> AsyncIterator[WorkerServer]:
    """Run a worker around an engine."""
    server = WorkerServer(engine, settings)
    await server.startup()
    try:
        yield server
    finally:
        await server.stop()


def running_worker(
    address: str, engine: Engine | None = None, weights_roots: tuple[Path, ...] = (), **simulation: object
) -> AbstractAsyncContextManager[WorkerServer]:
    """Run a worker, by default with a simulated engine of these settings."""
    if engine is None:
        engine = SimulatedEngine(SimulationSettings(**{"step_ms": 1, **simulation}))  # type: ignore[arg-type]
    return worker_around(engine, WorkerSettings(address, weights_roots=weights_roots))


@asynccontextmanager
async def scripted_worker(address: str, script: Script) -> AsyncIterator[None]:
    """Run a server whose sessions follow a script."""

    class Servicer(inference_pb2_grpc.InferenceServicer):
        async def Session(self, requests: AsyncIterator[pb.SessionRequest], context: SessionContext) -> None:
            await script(requests, context)

    server = grpc.aio.server(options=SERVER)
    inference_pb2_grpc.add_InferenceServicer_to_server(Servicer(), server)
    server.add_insecure_port(address)
    await server.start()
    try:
        yield
    finally:
        await server.stop(grace=None)


IDENTITY: dict[str, Any] = {"tokenizer_digest": "t", "weights_digest": "w", "dtype": "float32", "quantization": "none"}
"""What a scripted worker of this version has to say of itself, to be taken for one."""


def welcome(major: int = MAJOR, draining: bool = False, names: Sequence[str] = ("scripted",)) -> pb.SessionResponse:
    """Return a scripted worker's first event."""
    return pb.SessionResponse(
        welcome=pb.Welcome(
            protocol=pb.ProtocolVersion(major=major),
            model=pb.Model(names=names, engine="scripted", max_num_seqs=1),
            draining=draining,
        )
    )


def unix_address(folder: Path, name: str = "worker") -> str:
    """Return a Unix socket address in a folder."""
    return f"unix:{folder}/{name}.sock"


class Listener:
    """A slot listener that records what it receives."""

    def __init__(self) -> None:
        self.prefills: list[pb.PrefillInfo] = []
        self.rows: list[pb.LogprobRows] = []
        self.token_ids: list[int] = []
        self.versions: list[tuple[int, str]] = []
        self.finish: pb.Finish | None = None
        self.error: TokenwireError | None = None
        self.moved = asyncio.Event()
        """Set by the first tokens."""
        self.ended = asyncio.Event()
        """Set by the finish or the error."""
        self.steps_after_end = 0
        self.resumptions = 0

    @property
    def gained(self) -> int:
        """Return how many tokens it has."""
        return len(self.token_ids)

    @property
    def cached_tokens(self) -> int:
        """Return those of the last prefill."""
        return self.prefills[-1].cached_tokens if self.prefills else 0

    def prefilled(self, info: pb.PrefillInfo) -> None:
        """Record."""
        self.prefills.append(info)

    def scored(self, rows: pb.LogprobRows) -> None:
        """Record."""
        self.rows.append(rows)

    def weights(self, version: str) -> None:
        """Record, with the number of tokens before."""
        self.versions.append((len(self.token_ids), version))

    def resumed(self) -> None:
        """Count."""
        self.resumptions += 1

    def step(self, token_ids: list[int], finish: pb.Finish | None) -> bool:
        """Record."""
        self.steps_after_end += self.ended.is_set()
        self.token_ids += token_ids
        self.moved.set()
        if finish is not None:
            self.finish = finish
            self.ended.set()
        return False

    def fail(self, error: TokenwireError) -> None:
        """Record."""
        self.steps_after_end += self.ended.is_set()
        self.error = error
        self.ended.set()
