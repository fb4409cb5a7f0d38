"""The worker process around one engine: startup, serve, drain, stop.

One class beyond the usual length, since all of it is about the same sessions.
"""

import asyncio
import contextlib
import json
import logging
import uuid
from collections.abc import AsyncIterator

from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer

from tokenwire.errors import EngineFailed
from tokenwire.peer_auth.server import AuthenticatedPort
from tokenwire.protocol.tokenizer_digest import tokenizer_digest
from tokenwire.protocol.version import protocol_version
from tokenwire.v1 import control_pb2, control_pb2_grpc, inference_pb2_grpc
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.cache.prefix_cache import CacheChange, KvEventPublisher
from tokenwire.worker.engine.cpu_time import StallCpuTime
from tokenwire.worker.engine.interface import Engine, EngineSequence, Step
from tokenwire.worker.engine.stall_detector import StallDetector
from tokenwire.worker.services.control_service import ControlService
from tokenwire.worker.services.health import HealthServer
from tokenwire.worker.services.media_service import MediaService
from tokenwire.worker.services.metrics import MetricsServer, WorkerMetrics
from tokenwire.worker.services.recent_aborts import RecentAborts
from tokenwire.worker.services.session import Session, SessionContext
from tokenwire.worker.settings import WorkerSettings
from tokenwire.worker.state.serving_state import ServingStateController
from tokenwire.worker.state.weight_roots import WeightRoots

log = logging.getLogger(__name__)

# Kubernetes probes by name; "" is the server as a whole.
_HEALTH_SERVICES = ("", "liveness", "readiness", "tokenwire.v1.Inference", "tokenwire.v1.Control")

_HEARTBEAT_S = 0.5


class WorkerServer(inference_pb2_grpc.InferenceServicer):
    """Serves one engine to many coordinators."""

    def __init__(self, engine: Engine, settings: WorkerSettings, port: AuthenticatedPort | None = None) -> None:
        self._engine = engine
        self._settings = settings
        self._port = port or AuthenticatedPort(settings.peer_auth)
        self._server = self._port.make_server()
        self._health = HealthServicer()
        self._health_server = HealthServer(settings.health_listen, self._health) if settings.health_listen else None
        self._sessions: dict[Session, None] = {}  # in order of arrival, so that simulated runs can be repeated
        self._metrics = WorkerMetrics(engine, lambda: len(self._sessions))
        self._metrics_server = (
            MetricsServer(settings.metrics_listen, self._metrics.text) if settings.metrics_listen else None
        )
        self._instance_id = uuid.uuid4().hex
        self._model = pb.Model()
        self._capabilities = pb.EngineCapabilities()
        self._load = pb.Load()
        self._step_weight_version = ""
        self._kv_events = KvEventPublisher(self._broadcast_kv_events)
        self._recent_aborts = RecentAborts()
        self._controller = ServingStateController(
            engine,
            self._broadcast_serving_state,
            WeightRoots(settings.weights_roots),
            lambda: self._recent_aborts.record(None),
        )
        self._stall_detector = StallDetector()
        self._generated_tokens = 0
        self.is_draining = False
        """Whether new requests are refused."""
        self._handing_back = False
        """Whether sequences that are aborted now may continue on another worker."""
        self._idle = asyncio.Event()
        self._step_task: asyncio.Task[None] | None = None
        self._heartbeat_task: asyncio.Task[None] | None = None
        self.address = settings.listen

    # Lifecycle.

    async def startup(self) -> None:
        """Start the engine, then listen. Raises EngineFailed or OSError."""
        await self._engine.start()
        self._kv_events.start(self._engine)
        await self._controller.start()
        files = self._engine.tokenizer_files()
        self._model = self._engine.describe()
        self._capabilities = self._engine.capabilities()
        self._capabilities.sampled_logprobs = True
        self._model.tokenizer_digest = tokenizer_digest(files)
        inference_pb2_grpc.add_InferenceServicer_to_server(self, self._server)
        control = ControlService(self._engine, self._controller, self, files, self._model.tokenizer_digest)
        control_pb2_grpc.add_ControlServicer_to_server(control, self._server)
        inference_pb2_grpc.add_MediaServicer_to_server(MediaService(self._engine.media), self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self._step_task = asyncio.create_task(self._deliver_steps())
        self._heartbeat_task = asyncio.create_task(self._send_heartbeats())
        await self._listen()
        if self._health_server is not None:
            await self._health_server.startup()
            log.info("health on %s", self.health_address)
        if self._metrics_server is not None:
            await self._metrics_server.startup()
            log.info("metrics on http://%s/metrics", self._metrics_server.address)
        await self._set_health(health_pb2.HealthCheckResponse.SERVING)

    async def serve(self, shutdown: asyncio.Event) -> None:
        """Serve until `shutdown` is set, then drain. Raises EngineFailed when the engine dies."""
        assert self._step_task is not None
        waiter = asyncio.create_task(shutdown.wait())
        await asyncio.wait({waiter, self._step_task}, return_when=asyncio.FIRST_COMPLETED)
        waiter.cancel()
        if self._step_task.done():
            self._step_task.result()
            raise EngineFailed("The engine stopped stepping.")
        await self.drain(None)

    async def drain(self, deadline_s: float | None) -> None:
        """Refuse new requests; return once no slot is open, aborting the remaining ones at the deadline."""
        deadline_s = self._settings.drain_timeout_s if deadline_s is None else deadline_s
        self.is_draining = True
        await self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING, keep=("liveness",))
        for session in self._sessions:
            session.announce_drain(deadline_s)
        log.info("draining %d open slot(s) within %.0f s", self._open_slots(), deadline_s)
        if not await self._wait_idle(deadline_s):
            log.warning("drain deadline passed: aborting %d slot(s)", self._open_slots())
            self._handing_back = True
            for session in list(self._sessions):
                await session.abort_all()
            await self._wait_idle(2.0)

    async def stop(self) -> None:
        """Close the port, then the engine. Safe after a failed startup."""
        await self._health.enter_graceful_shutdown()
        # The grace period lets terminal events reach coordinators before their streams end.
        await self._server.stop(grace=0.2)
        if self._health_server is not None:
            await self._health_server.stop()
        if self._metrics_server is not None:
            await self._metrics_server.stop()
        if self._heartbeat_task is not None:
            self._heartbeat_task.cancel()
        if self._step_task is not None:
            self._step_task.cancel()
            with contextlib.suppress(asyncio.CancelledError, EngineFailed):
                await self._step_task
        self._kv_events.stop()
        await self._engine.stop()

    @property
    def health_address(self) -> str | None:
        """Address of the health port, if there is one."""
        return None if self._health_server is None else self._health_server.address

    # For control calls and sessions.

    def welcome(self) -> pb.Welcome:
        """Describe the worker as it is now."""
        return pb.Welcome(
            protocol=protocol_version(),
            instance_id=self._instance_id,
            model=self._model,
            weight_version=self._controller.state.weight_version,
            load=self._load,
            draining=self.is_draining,
            serving=self._controller.state,
            heartbeat_ms=int(1000 * _HEARTBEAT_S),
            capabilities=self._capabilities,
        )

    def was_aborted(self, submit: pb.Submit | pb.Pool) -> bool:
        """Return whether a resumed request was aborted before it came here."""
        return self._recent_aborts.include(submit)

    def check_adapter(self, adapter: pb.LoraAdapter) -> None:
        """Raise InvalidRequest if an adapter may not be read from its path."""
        self._controller.check_adapter(adapter)

    def on_submitted(self, sequences: list[EngineSequence], prompt_tokens: int) -> None:
        """Expect steps of sequences that the engine accepted, with so many tokens to compute for each."""
        self._stall_detector.on_submitted(sequences, prompt_tokens)

    def server_info(self) -> control_pb2.GetServerInfoResponse:
        """Return the welcome, the engine's configuration and counters."""
        return control_pb2.GetServerInfoResponse(
            welcome=self.welcome(),
            sessions=len(self._sessions),
            open_slots=self._open_slots(),
            steps=self._stall_detector.steps,
            generated_tokens=self._generated_tokens,
            engine_config_json=json.dumps(self._engine.configuration()),
        )

    async def metrics_text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return await self._metrics.text()

    async def abort_requests(self, request_ids: set[str] | None) -> int:
        """Abort requests of any session, all for None; return the number of aborted slots."""
        self._recent_aborts.record(request_ids)
        return sum([await session.abort_requests(request_ids) for session in list(self._sessions)])

    # gRPC.

    async def Session(self, requests: AsyncIterator[pb.SessionRequest], context: SessionContext) -> None:
        session = Session(self._engine, self)
        self._sessions[session] = None
        snapshot = self._kv_events.snapshot()
        if snapshot is not None:
            session.frame_buffer.add_kv_events(snapshot)
        try:
            await session.run(requests, context)
        finally:
            self._sessions.pop(session, None)

    # Internals.

    def _broadcast_serving_state(self, state: pb.ServingState) -> None:
        for session in self._sessions:
            session.frame_buffer.add_event(pb.SessionResponse(serving=state))

    def _broadcast_kv_events(self, change: CacheChange) -> None:
        for session in self._sessions:
            session.frame_buffer.add_kv_events(change)

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

    async def _send_heartbeats(self) -> None:
        detector, cpu = self._stall_detector, StallCpuTime()
        while True:
            await asyncio.sleep(_HEARTBEAT_S)
            if self._controller.suspends_stepping:
                detector.reset()
            stalled_s = detector.stalled_s
            heartbeat = pb.Heartbeat(
                load=self._load,
                steps=detector.steps,
                stalled_ms=int(1000 * stalled_s),
                allowance_ms=int(1000 * detector.allowance_s),
            )
            cpu_s = cpu.spent_s(stalled_s)
            if cpu_s is not None:
                heartbeat.engine_cpu_ms = int(1000 * cpu_s)
            for session in self._sessions:
                session.frame_buffer.add_heartbeat(heartbeat)

    def _deliver(self, step: Step) -> None:
        self._stall_detector.on_step(step)
        if step.weight_version != self._step_weight_version:
            for session in self._sessions:
                session.frame_buffer.end_frame()
        preparing = sum(session.preparing for session in self._sessions)
        if preparing:
            step.load.waiting += preparing
        self._load, self._step_weight_version = step.load, step.weight_version
        for sequence, token_ids in zip(step.sequences, step.token_ids, strict=True):
            if token_ids:
                self._generated_tokens += len(token_ids)
                sequence.frame_buffer.add_tokens(sequence.slot, token_ids)
        for sequence, prefill in step.prefills:
            sequence.frame_buffer.add_prefill(sequence.slot, prefill)
        for sequence, rows in step.logprobs:
            sequence.frame_buffer.add_logprobs(sequence.slot, rows)
        for sequence, scores in step.scores:
            sequence.frame_buffer.add_sampled(sequence.slot, scores)
        for sequence, finish in step.finishes:
            if self._handing_back and finish.reason == pb.FINISH_REASON_ABORT:
                finish.handed_back = True
            sequence.frame_buffer.add_finish(sequence.slot, finish)
        for session in self._sessions:
            session.frame_buffer.flush(step.load, step.weight_version)
        if self.is_draining and not self._open_slots():
            self._idle.set()

    def _open_slots(self) -> int:
        return sum(session.open_slots for session in self._sessions)

    async def _wait_idle(self, timeout_s: float) -> bool:
        # A session that ends closes its slots without a step, so check again every half second.
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
