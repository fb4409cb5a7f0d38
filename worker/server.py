"""The worker process around one engine: startup, serve, drain, stop."""

import asyncio
import contextlib
import json
import logging
import uuid
from collections.abc import AsyncIterator

from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer

from tokenwire import protocol, tokenizer_files
from tokenwire.errors import EngineFailed
from tokenwire.peer_auth.server import GuardedPort
from tokenwire.v1 import control_pb2, control_pb2_grpc, inference_pb2_grpc
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.control_service import ControlService
from tokenwire.worker.engine import Engine, Step
from tokenwire.worker.engine_cpu import StallCpu
from tokenwire.worker.metrics import WorkerMetrics
from tokenwire.worker.metrics_port import MetricsPort
from tokenwire.worker.prefix_cache import CacheChange, CacheFeed
from tokenwire.worker.probes import ProbePort
from tokenwire.worker.serving_state import ServingStateController
from tokenwire.worker.session import Session, SessionContext
from tokenwire.worker.settings import WorkerSettings
from tokenwire.worker.stall_detector import StallDetector
from tokenwire.worker.weight_roots import WeightRoots

log = logging.getLogger(__name__)

# Kubernetes probes by name; "" is the server as a whole.
_HEALTH_SERVICES = ("", "liveness", "readiness", "tokenwire.v1.Inference", "tokenwire.v1.Control")

_HEARTBEAT_S = 0.5


class WorkerServer(inference_pb2_grpc.InferenceServicer):
    """Serves one engine to many coordinators."""

    def __init__(self, engine: Engine, settings: WorkerSettings) -> None:
        self._engine = engine
        self._settings = settings
        self._port = GuardedPort(settings.link)
        self._server = self._port.make_server()
        self._health = HealthServicer()
        self._probes = ProbePort(settings.health_listen, self._health) if settings.health_listen else None
        self._sessions: set[Session] = set()
        self._metrics = WorkerMetrics(engine, lambda: len(self._sessions))
        self._metrics_port = (
            MetricsPort(settings.metrics_listen, self._metrics.text) if settings.metrics_listen else None
        )
        self._instance_id = uuid.uuid4().hex
        self._model = pb.Model()
        self._capabilities = pb.EngineCapabilities()
        self._load = pb.Load()
        self._steps_version = ""
        self._cache = CacheFeed(self._tell_cache)
        self._steering = ServingStateController(engine, self._announce, WeightRoots(settings.weights_roots))
        self._step_clock = StallDetector()
        self._generated_tokens = 0
        self._draining = False
        self._handing_back = False
        """Whether sequences that are aborted now may go on at another worker."""
        self._idle = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None
        self._beating: asyncio.Task[None] | None = None
        self.address = settings.listen

    # Lifecycle.

    async def startup(self) -> None:
        """Start the engine, then listen. Raises EngineFailed or OSError."""
        await self._engine.start()
        self._cache.begin(self._engine)
        await self._steering.start()
        files = self._engine.tokenizer_files()
        self._model = self._engine.describe()
        self._capabilities = self._engine.capabilities()
        self._model.tokenizer_digest = tokenizer_files.digest(files)
        inference_pb2_grpc.add_InferenceServicer_to_server(self, self._server)
        control = ControlService(self._engine, self._steering, self, files, self._model.tokenizer_digest)
        control_pb2_grpc.add_ControlServicer_to_server(control, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self._pump = asyncio.create_task(self._deliver_steps())
        self._beating = asyncio.create_task(self._beat())
        await self._listen()
        if self._probes is not None:
            await self._probes.startup()
            log.info("health on %s", self.health_address)
        if self._metrics_port is not None:
            await self._metrics_port.startup()
            log.info("metrics on http://%s/metrics", self._metrics_port.address)
        await self._set_health(health_pb2.HealthCheckResponse.SERVING)

    async def serve(self, shutdown: asyncio.Event) -> None:
        """Serve until `shutdown` is set, then drain. Raises EngineFailed when the engine dies."""
        assert self._pump is not None
        waiter = asyncio.create_task(shutdown.wait())
        await asyncio.wait({waiter, self._pump}, return_when=asyncio.FIRST_COMPLETED)
        waiter.cancel()
        if self._pump.done():
            self._pump.result()
            raise EngineFailed("The engine ended its steps.")
        await self.drain(None)

    async def drain(self, deadline_s: float | None) -> None:
        """Take nothing new; return when no slot is open, at the deadline by aborting what is left."""
        deadline_s = self._settings.drain_timeout_s if deadline_s is None else deadline_s
        self._draining = True
        await self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING, keep=("liveness",))
        for session in self._sessions:
            session.announce_drain(deadline_s)
        log.info("draining: %d slots open, %.0f s at most", self._open_slots(), deadline_s)
        if not await self._wait_idle(deadline_s):
            log.warning("drain deadline: aborting %d slots", self._open_slots())
            self._handing_back = True
            for session in list(self._sessions):
                await session.abort_all()
            await self._wait_idle(2.0)

    async def stop(self) -> None:
        """Close the port, then the engine. Safe after a failed startup."""
        await self._health.enter_graceful_shutdown()
        # The grace lets terminal events reach coordinators before their streams end.
        await self._server.stop(grace=0.2)
        if self._probes is not None:
            await self._probes.stop()
        if self._metrics_port is not None:
            await self._metrics_port.stop()
        if self._beating is not None:
            self._beating.cancel()
        if self._pump is not None:
            self._pump.cancel()
            with contextlib.suppress(asyncio.CancelledError, EngineFailed):
                await self._pump
        self._cache.stop()
        await self._engine.stop()

    @property
    def health_address(self) -> str | None:
        """Where health alone is told, if anywhere."""
        return None if self._probes is None else self._probes.address

    # What control calls and sessions ask.

    def welcome(self) -> pb.Welcome:
        """Describe the worker as it is now."""
        return pb.Welcome(
            protocol=protocol.version(),
            instance_id=self._instance_id,
            model=self._model,
            weight_version=self._steering.state.weight_version,
            load=self._load,
            draining=self._draining,
            serving=self._steering.state,
            heartbeat_ms=int(1000 * _HEARTBEAT_S),
            capabilities=self._capabilities,
        )

    def server_info(self) -> control_pb2.GetServerInfoResponse:
        """Describe the worker and count its work."""
        return control_pb2.GetServerInfoResponse(
            welcome=self.welcome(),
            sessions=len(self._sessions),
            open_slots=self._open_slots(),
            steps=self._step_clock.steps,
            generated_tokens=self._generated_tokens,
            engine_config_json=json.dumps(self._engine.configuration()),
        )

    async def metrics_text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return await self._metrics.text()

    async def abort_requests(self, request_ids: set[str] | None) -> int:
        """End requests of any session, None all of them; returns how many slots were ended."""
        return sum([await session.abort_requests(request_ids) for session in list(self._sessions)])

    # gRPC.

    async def Session(self, requests: AsyncIterator[pb.SessionRequest], context: SessionContext) -> None:
        session = Session(
            self._engine,
            self.welcome,
            lambda: self._draining,
            self._step_clock.submitted,
            self._steering.check_adapter,
        )
        self._sessions.add(session)
        snapshot = self._cache.snapshot()
        if snapshot is not None:
            session.outbox.add_cache(snapshot)
        try:
            await session.run(requests, context)
        finally:
            self._sessions.discard(session)

    # Internals.

    def _announce(self, state: pb.ServingState) -> None:
        for session in self._sessions:
            session.outbox.add_event(pb.SessionResponse(serving=state))

    def _tell_cache(self, change: CacheChange) -> None:
        for session in self._sessions:
            session.outbox.add_cache(change)

    async def _listen(self) -> None:
        address = self._settings.listen
        try:
            port = self._port.listen(self._server, address)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {address}: {error}") from error
        if not address.startswith("unix:"):
            self.address = f"{address.rpartition(':')[0]}:{port}"
        self._port.warn(self.address)
        await self._server.start()

    async def _deliver_steps(self) -> None:
        try:
            async for step in self._engine.steps():
                self._deliver(step)
        except EngineFailed:
            await self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)
            raise

    async def _beat(self) -> None:
        clock, cpu = self._step_clock, StallCpu()
        while True:
            await asyncio.sleep(_HEARTBEAT_S)
            if self._steering.halts_engine:
                clock.allow()
            stalled_s = clock.stalled_s
            heartbeat = pb.Heartbeat(
                load=self._load,
                steps=clock.steps,
                stalled_ms=int(1000 * stalled_s),
                allowance_ms=int(1000 * clock.allowance_s),
            )
            cpu_s = cpu.spent_s(stalled_s)
            if cpu_s is not None:
                heartbeat.engine_cpu_ms = int(1000 * cpu_s)
            for session in self._sessions:
                session.outbox.beat(heartbeat)

    def _deliver(self, step: Step) -> None:
        self._step_clock.stepped(step)
        if step.weight_version != self._steps_version:
            for session in self._sessions:
                session.outbox.cut()
        self._load, self._steps_version = step.load, step.weight_version
        for sequence, token_ids in zip(step.sequences, step.token_ids, strict=True):
            if token_ids:
                self._generated_tokens += len(token_ids)
                sequence.outbox.add_tokens(sequence.slot, token_ids)
        for sequence, prefill in step.prefills:
            sequence.outbox.add_prefill(sequence.slot, prefill)
        for sequence, rows in step.logprobs:
            sequence.outbox.add_logprobs(sequence.slot, rows)
        for sequence, finish in step.finishes:
            if self._handing_back and finish.reason == pb.FINISH_REASON_ABORT:
                finish.handed_back = True
            sequence.outbox.add_finish(sequence.slot, finish)
        for session in self._sessions:
            session.outbox.flush(step.load, step.weight_version)
        if self._draining and not self._open_slots():
            self._idle.set()

    def _open_slots(self) -> int:
        return sum(session.open_slots for session in self._sessions)

    async def _wait_idle(self, timeout_s: float) -> bool:
        # A session that ends closes slots without a step, so look again now and then.
        deadline = asyncio.get_running_loop().time() + timeout_s
        while self._open_slots():
            remaining = deadline - asyncio.get_running_loop().time()
            if remaining <= 0:
                return False
            self._idle.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), min(remaining, 0.5))
        return True

    async def _set_health(
        self, status: "health_pb2.HealthCheckResponse.ServingStatus", keep: tuple[str, ...] = ()
    ) -> None:
        for service in _HEALTH_SERVICES:
            if service not in keep:
                await self._health.set(service, status)
