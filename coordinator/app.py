"""Puts the coordinator together: pool, models, generation, routes."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from coordinator.access.gate import FREE_PATHS, AccessGate
from coordinator.access.hosts import HostGate, is_loopback
from coordinator.access.keys import open_keys
from coordinator.admission.expected import ExpectedModels
from coordinator.admission.queue import AdmissionQueue
from coordinator.api.anthropic.routes import messages_routes
from coordinator.api.chat import ChatService, chat_routes
from coordinator.api.completions import completion_routes
from coordinator.api.control.gate import AdminGate
from coordinator.api.control.routes import control_routes
from coordinator.api.debug_headers import DebugHeaders
from coordinator.api.errors import install_error_handlers
from coordinator.api.openapi.document import Security
from coordinator.api.openapi.routes import DOCUMENTATION_PATHS, documentation_routes
from coordinator.api.render import render_routes
from coordinator.api.responses.routes import responses_routes
from coordinator.api.resumption import ResumptionHeader
from coordinator.api.service import service_routes
from coordinator.api.tokens.routes import token_routes
from coordinator.body_limit import BodyLimit
from coordinator.drain import DrainDeadline
from coordinator.fleet.aborts import Aborts
from coordinator.fleet.control import FleetControl
from coordinator.fleet.discovery.finder import WorkerFinder
from coordinator.fleet.discovery.parse import open_source
from coordinator.fleet.failover.layer import Failover
from coordinator.fleet.pool import WorkerPool
from coordinator.fleet.routing import Router
from coordinator.fleet.status import FleetStatus
from coordinator.fleet.stock.settings import StockSettings
from coordinator.fleet.targets import Targets
from coordinator.generation import Generation
from coordinator.history.open_store import open_store
from coordinator.history.service import TokenHistory
from coordinator.metrics.fleet import FleetCollector
from coordinator.metrics.metrics import Metrics
from coordinator.metrics.relay import Relay
from coordinator.models import ModelDirectory
from coordinator.observation.observer import Observer, RequestListener
from coordinator.observation.open_tracing import open_tracing
from coordinator.observation.request_log import RequestLog
from coordinator.page.routes import PAGE_PATHS, page_routes
from coordinator.page.snapshot import Snapshot
from coordinator.readiness import Readiness
from coordinator.settings import CoordinatorSettings
from tokenwire.link.client import Link


def build_app(settings: CoordinatorSettings) -> FastAPI:
    """Return the ASGI application; its lifespan connects to the workers and leaves them."""
    readiness = Readiness()
    targets = Targets(settings.control.stale_weights)
    expected = ExpectedModels(settings.expected_models, settings.admission)
    models = ModelDirectory(settings, targets, expected=expected)
    coordinator_id = f"{socket.gethostname()}:{os.getpid()}"
    pool = WorkerPool(
        coordinator_id,
        models.prepare,
        targets,
        link=Link(settings.link),
        router=Router(settings.routing),
        model_left=models.left,
        vigil=settings.vigil,
        stock=StockSettings(settings.tokenizer, settings.stock_key),
    )
    finder = WorkerFinder({value: open_source(value, pool.serves) for value in settings.workers}, pool.update)
    history = TokenHistory(open_store(settings.history))
    queue = AdmissionQueue(pool, settings.admission, expected)
    failover = Failover(queue, settings.failover, pool)
    pool.watch_drains(failover.drained)
    pool.watch_losses(failover.poison.lost, failover.poison.survived)
    generation = Generation(
        failover,
        models,
        history,
        settings.admission.request_timeout_s,
        queue.check_open,
        takes_transfers=settings.api.kv_transfer_params,
    )
    aborts = Aborts(lambda: pool.sessions, lambda request_ids: queue.end(request_ids) + failover.end(request_ids))
    gate = AdminGate(settings.control.admin_key)
    control = FleetControl(pool, targets, settings.control.timeout_s)
    fleet = FleetStatus(pool, control)
    metrics = Metrics(FleetCollector(pool, queue, failover.stats), Relay(lambda: pool.sessions), settings.siblings_dir)
    tracing = open_tracing(settings.observation.otlp_traces_endpoint)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        finder.start()
        await metrics.start()
        yield
        await metrics.stop()
        await finder.stop()
        failover.stop()
        await pool.stop()
        await models.close()
        await history.close()
        if tracing is not None:
            await asyncio.to_thread(tracing.close)

    app = FastAPI(openapi_url=None, lifespan=lifespan)
    app.state.pool = pool
    app.state.readiness = readiness
    chat = ChatService(generation, models, settings.api)
    app.include_router(chat_routes(chat))
    app.include_router(responses_routes(chat))
    app.include_router(messages_routes(chat, models))
    if settings.api.render_route:
        app.include_router(render_routes(chat, generation, settings.parsers))
    app.include_router(completion_routes(generation, settings.api))
    app.include_router(token_routes(chat, generation, models, aborts, settings.api, gate))
    steering = control_routes(control, fleet, settings.control, gate)
    app.include_router(steering)
    app.include_router(service_routes(pool, models, readiness, metrics))
    if settings.status_page:
        app.include_router(page_routes(Snapshot(coordinator_id, pool, fleet, models, queue, readiness)))
    keys = open_keys(settings.access)
    free_paths = FREE_PATHS | DOCUMENTATION_PATHS | (PAGE_PATHS if settings.status_page else frozenset())
    security = Security(keys is not None, settings.control.admin_key is not None, free_paths, gate.guards)
    app.include_router(documentation_routes(app.routes, security))
    install_error_handlers(app)
    if settings.api.debug_headers:
        app.add_middleware(DebugHeaders)
    app.add_middleware(ResumptionHeader)
    app.add_middleware(BodyLimit, limit_bytes=settings.max_body_bytes)
    if keys is not None:
        app.add_middleware(AccessGate, keys=keys, free_paths=free_paths, guarded=steering.routes)
    if settings.allowed_hosts or is_loopback(settings.host):
        app.add_middleware(HostGate, allowed=settings.allowed_hosts)
    listeners: list[RequestListener] = [metrics.requests]
    if settings.observation.request_log:
        listeners.append(RequestLog())
    if tracing is not None:
        listeners.append(tracing)
    app.add_middleware(DrainDeadline, readiness=readiness)
    app.add_middleware(Observer, listeners=listeners, keeps_prompts=settings.observation.log_prompts)
    return app
