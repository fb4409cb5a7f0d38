"""Composes the coordinator: pool, models, generation, routes.

One file, since all parts are put together in one place.
"""

import asyncio
import ipaddress
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.applications import Starlette

from tokenwire.coordinator.api.admin.authorization import AdminAuthorization
from tokenwire.coordinator.api.admin.routes import admin_routes
from tokenwire.coordinator.api.anthropic.routes import messages_routes
from tokenwire.coordinator.api.middleware import FREE_PATHS, AllowedHosts, Authenticator, RequestMiddleware
from tokenwire.coordinator.api.openai.chat import ChatService, chat_routes
from tokenwire.coordinator.api.openai.completions import completion_routes
from tokenwire.coordinator.api.openai.derender import derender_routes
from tokenwire.coordinator.api.openai.render import render_routes
from tokenwire.coordinator.api.openai.submits import submit_routes
from tokenwire.coordinator.api.openapi.routes import DOCUMENTATION_PATHS, documentation_routes
from tokenwire.coordinator.api.openapi.security import Security
from tokenwire.coordinator.api.pooling.routes import pooling_routes
from tokenwire.coordinator.api.public_words import request_log
from tokenwire.coordinator.api.responses.background import BackgroundResponses
from tokenwire.coordinator.api.responses.routes import responses_routes
from tokenwire.coordinator.api.router import ApiApplication, ApiRouter
from tokenwire.coordinator.api.service_info import service_routes
from tokenwire.coordinator.api.status_page.routes import PAGE_PATHS, page_routes
from tokenwire.coordinator.api.status_page.snapshot import Snapshot
from tokenwire.coordinator.api.status_page.traffic import TrafficSamples
from tokenwire.coordinator.api.tokens.routes import token_routes
from tokenwire.coordinator.api.trajectories.gateway_workers import gateway_worker_routes
from tokenwire.coordinator.api.trajectories.routes import trajectory_routes, unrecorded_routes
from tokenwire.coordinator.api.trajectories.session_paths import SessionPaths
from tokenwire.coordinator.auth.accounts import Accounts, open_accounts
from tokenwire.coordinator.auth.api_keys import ApiKeys, open_keys
from tokenwire.coordinator.auth.settings import AdminSettings
from tokenwire.coordinator.fleet.aborts import FleetAborts
from tokenwire.coordinator.fleet.admin import FleetAdmin
from tokenwire.coordinator.fleet.admission.expected_models import ExpectedModels
from tokenwire.coordinator.fleet.admission.queue import AdmissionQueue
from tokenwire.coordinator.fleet.admission.redis_share_store import RedisShareStore
from tokenwire.coordinator.fleet.admission.share_exchange import ShareExchange
from tokenwire.coordinator.fleet.desired_state import DesiredStates
from tokenwire.coordinator.fleet.discovery.discovery import Discovery
from tokenwire.coordinator.fleet.discovery.parse import parse_source
from tokenwire.coordinator.fleet.discovery.source import DiscoverySource
from tokenwire.coordinator.fleet.failover.failover import Failover
from tokenwire.coordinator.fleet.failover.poison_journal import PoisonJournal
from tokenwire.coordinator.fleet.freshness.freshness import Freshness
from tokenwire.coordinator.fleet.media_expansion import MediaExpander
from tokenwire.coordinator.fleet.operation_trust import OperationTrust, Unsigned
from tokenwire.coordinator.fleet.outliers import OutlierDetector
from tokenwire.coordinator.fleet.pool import WorkerPool
from tokenwire.coordinator.fleet.routing import Router
from tokenwire.coordinator.fleet.status import FleetStatus
from tokenwire.coordinator.fleet.transport.vllm_http.settings import VllmHttpSettings
from tokenwire.coordinator.generation.media import MediaPrompts
from tokenwire.coordinator.generation.model_directory import ModelDirectory
from tokenwire.coordinator.generation.service import GenerationService
from tokenwire.coordinator.history.open_store import open_store
from tokenwire.coordinator.history.store import HistoryStore
from tokenwire.coordinator.history.token_history import TokenHistory
from tokenwire.coordinator.http.readiness import Readiness
from tokenwire.coordinator.media.loader import MediaLoader
from tokenwire.coordinator.observability.metrics.fleet import FleetCollector
from tokenwire.coordinator.observability.metrics.media import MediaCollector
from tokenwire.coordinator.observability.metrics.metrics import Metrics
from tokenwire.coordinator.observability.metrics.parsers import ParserCollector
from tokenwire.coordinator.observability.metrics.relay import Relay
from tokenwire.coordinator.observability.metrics.tenants import LimitStoreCollector
from tokenwire.coordinator.observability.record import RequestListener
from tokenwire.coordinator.observability.siblings import Siblings
from tokenwire.coordinator.pooling.service import PoolingService
from tokenwire.coordinator.response_store.open_store import open_response_store
from tokenwire.coordinator.settings import CoordinatorSettings
from tokenwire.coordinator.trajectories.metrics import TrajectoryCollector
from tokenwire.coordinator.trajectories.open_store import open_recorder
from tokenwire.errors import InvalidRequest
from tokenwire.peer_auth.client import ChannelFactory
from tokenwire.peer_auth.grpc_options import MOST_EVENT_BYTES
from tokenwire.peer_auth.operation_keys import open_operation_keys

if TYPE_CHECKING:
    from tokenwire.coordinator.observability.tracing import Tracing


@dataclass(frozen=True, slots=True)
class Observers:
    """What counts requests and the fleet of this process, and shares it with the processes of the same port."""

    metrics: Metrics
    siblings: Siblings
    traffic: TrafficSamples | None
    """Samples for the status page; None without one."""

    def listeners(self) -> list[RequestListener]:
        """Return those that count requests."""
        listeners = (self.metrics.requests, self.metrics.tenants, self.traffic)
        return [listener for listener in listeners if listener is not None]

    async def start(self) -> None:
        """Start timers, and serve the sibling processes."""
        self.metrics.start()
        if self.traffic is not None:
            self.traffic.start()
        await self.siblings.start()

    async def stop(self) -> None:
        """Stop all."""
        await self.siblings.stop()
        if self.traffic is not None:
            self.traffic.stop()
        self.metrics.stop()


@dataclass(frozen=True, slots=True)
class Core:
    """What the routes serve: the workers and all that is between them and a request."""

    coordinator_id: str
    keys: Callable[[], ApiKeys] | None
    """The current API keys; None if no key is required."""
    accounts: Accounts
    readiness: Readiness
    models: ModelDirectory
    pool: WorkerPool
    queue: AdmissionQueue
    shares: ShareExchange | None
    """Counts the work of tenants together with other processes; None: each process by itself."""
    failover: Failover
    freshness: Freshness
    history: TokenHistory
    responses: BackgroundResponses | None
    """Stored responses, and those that run in the background; None: responses are not stored."""
    generation: GenerationService
    pooling: PoolingService
    admin: FleetAdmin
    aborts: FleetAborts
    status: FleetStatus
    observers: Observers


def build_app(
    settings: CoordinatorSettings, core: Core | None = None, sources: Mapping[str, DiscoverySource] | None = None
) -> Starlette:
    """Return the ASGI application; its lifespan connects to the workers and disconnects.

    `core` and `sources` replace those that the settings describe.
    """
    core = core or build_core(settings)
    tracing = _open_tracing(settings.observability.otlp_traces_endpoint)
    sources = sources or {
        value: parse_source(value, core.pool.serves, settings.kubernetes) for value in settings.workers
    }
    discovery = Discovery(sources, core.pool.update)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        discovery.start()
        await core.observers.start()
        if core.shares is not None:
            core.shares.start()
        yield
        await core.observers.stop()
        await discovery.stop()
        await _stop(core)
        if tracing is not None:
            await asyncio.to_thread(tracing.close)

    app = ApiApplication(lifespan=lifespan)
    app.state.pool = core.pool
    app.state.readiness = core.readiness
    authenticator = _add_routes(app, settings, core)
    listeners = core.observers.listeners()
    if settings.observability.request_log:
        listeners.append(request_log())
    if tracing is not None:
        listeners.append(tracing)
    _add_middleware(app, settings, core.readiness, listeners, authenticator)
    return app


def _open_tracing(endpoint: str | None) -> "Tracing | None":
    """Return a listener that exports spans to an endpoint; None without one. Raises InvalidRequest."""
    if endpoint is None:
        return None
    try:
        from tokenwire.coordinator.observability.tracing import Tracing, otlp_exporter
    except ImportError as error:
        raise InvalidRequest("--otlp-traces-endpoint needs OpenTelemetry: pip install 'tokenwire[otel]'") from error
    return Tracing(otlp_exporter(endpoint))


def build_core(
    settings: CoordinatorSettings,
    *,
    coordinator_id: str | None = None,
    channels: ChannelFactory | None = None,
    store: HistoryStore | None = None,
) -> Core:
    """Return the coordinator without its HTTP interface, not connected yet; keywords replace what settings name."""
    readiness, desired = Readiness(), _desired_states(settings.admin)
    expected = ExpectedModels(settings.expected_models, settings.admission)
    models = ModelDirectory(settings, desired, expected=expected)
    coordinator_id = coordinator_id or f"{socket.gethostname()}:{os.getpid()}"
    pool = _pool(settings, coordinator_id, models, desired, channels)
    queue, shares = _admission(settings, pool, expected)
    keys, accounts = _keys(settings)
    failover, freshness = _failover(settings, queue, pool, desired, keys)
    history = TokenHistory(store or open_store(settings.history))
    admin = FleetAdmin(pool, desired, settings.admin.timeout_s, failover.abort_running)
    fleet = FleetCollector(pool, queue, failover.stats, freshness.expired)
    generation = _generation(settings, pool, failover, history, freshness)
    return Core(
        coordinator_id=coordinator_id,
        keys=keys,
        accounts=accounts,
        readiness=readiness,
        models=models,
        pool=pool,
        queue=queue,
        shares=shares,
        failover=failover,
        freshness=freshness,
        history=history,
        responses=_responses(settings, generation),
        generation=generation,
        pooling=PoolingService(failover, settings.api),
        admin=admin,
        aborts=FleetAborts(lambda: pool.sessions, lambda ids: queue.abort(ids) + failover.abort(ids)),
        status=FleetStatus(pool, admin),
        observers=_observers(settings, pool, (fleet, models, generation), readiness, keys, (accounts, shares)),
    )


def _generation(
    settings: CoordinatorSettings, pool: WorkerPool, failover: Failover, history: TokenHistory, freshness: Freshness
) -> GenerationService:
    media = MediaPrompts(MediaLoader(settings.media), MediaExpander(pool, absence_s=settings.admission.queue_timeout_s))
    recorder = open_recorder(settings.trajectories)
    return GenerationService(failover, history, settings.api, freshness, media, recorder)


def _desired_states(admin: AdminSettings) -> DesiredStates:
    keys = open_operation_keys(admin.operations_key_file, admin.operations_keys)
    trust = OperationTrust(keys, Unsigned.by_routes(admin.rl_routes, admin.lora_routes))
    return DesiredStates(admin.stale_weights, trust)


def _admission(
    settings: CoordinatorSettings, pool: WorkerPool, expected: ExpectedModels
) -> tuple[AdmissionQueue, ShareExchange | None]:
    queue, auth = AdmissionQueue(pool, settings.admission, expected), settings.auth
    if auth.limits_store is None:
        return queue, None
    return queue, ShareExchange(RedisShareStore(auth.limits_store, auth.limits_store_password), queue.shares)


async def _stop(core: Core) -> None:
    """End what runs, disconnect from the workers, and close the stores."""
    if core.shares is not None:
        await core.shares.stop()
    if core.responses is not None:
        await core.responses.close()
    core.failover.stop()
    await core.pool.stop()
    await core.models.close()
    await asyncio.gather(core.history.close(), core.accounts.close(), core.generation.close())
    if core.generation.recorder is not None:
        await core.generation.recorder.close()


def _responses(settings: CoordinatorSettings, generation: GenerationService) -> BackgroundResponses | None:
    store = open_response_store(settings.response_store)
    return None if store is None else BackgroundResponses(generation, store, settings.response_store)


def _channels(settings: CoordinatorSettings) -> ChannelFactory:
    # A log-probability is a ninth of what it counts in a request, so the largest request's fit in one event.
    most_event_bytes = max(MOST_EVENT_BYTES, settings.api.max_request_bytes // 8)
    return ChannelFactory(settings.peer_auth, most_event_bytes, settings.max_tokenizer_bytes)


def _keys(settings: CoordinatorSettings) -> tuple[Callable[[], ApiKeys] | None, Accounts]:
    keys = open_keys(settings.auth)
    return keys, open_accounts(settings.auth, keys is not None and keys().limited, settings.processes)


def _pool(
    settings: CoordinatorSettings,
    coordinator_id: str,
    models: ModelDirectory,
    desired: DesiredStates,
    channels: ChannelFactory | None,
) -> WorkerPool:
    pool = WorkerPool(
        coordinator_id,
        models.prepare,
        desired,
        channels=channels or _channels(settings),
        router=Router(settings.routing),
        liveness=settings.liveness,
        vllm_http=VllmHttpSettings(settings.tokenizer, settings.http_worker_key),
        outliers=OutlierDetector(settings.outliers),
        processes=settings.processes,
    )
    models.watch(pool)
    pool.subscribe(models)
    return pool


def _observers(
    settings: CoordinatorSettings,
    pool: WorkerPool,
    counted: tuple[FleetCollector, ModelDirectory, GenerationService],
    readiness: Readiness,
    keys: Callable[[], ApiKeys] | None,
    counting: tuple[Accounts, ShareExchange | None],
) -> Observers:
    siblings = Siblings(settings.siblings_dir)
    tenants = None if keys is None else lambda: keys().tenants
    fleet, models, generation = counted
    metrics = Metrics(fleet, Relay(lambda: pool.sessions), siblings, lambda: readiness.in_flight, tenants)
    metrics.registry.register(ParserCollector(models.disagreements))
    if generation.media is not None:
        metrics.registry.register(MediaCollector(generation.media.loader))
    if generation.recorder is not None:
        metrics.registry.register(TrajectoryCollector(generation.recorder.store))
    accounts, shares = counting
    stores = [each.store for each in (accounts, shares) if each is not None and each.store is not None]
    if stores:
        metrics.registry.register(LimitStoreCollector(stores))
    traffic = TrafficSamples(lambda: pool.sessions, pool.stats_by_model) if settings.status_page else None
    return Observers(metrics, siblings, traffic)


def _failover(
    settings: CoordinatorSettings,
    queue: AdmissionQueue,
    pool: WorkerPool,
    desired: DesiredStates,
    keys: Callable[[], ApiKeys] | None,
) -> tuple[Failover, Freshness]:
    """Return the two outermost layers of the fleet."""
    journal = None if settings.siblings_dir is None else PoisonJournal(settings.siblings_dir)

    def has_tenants() -> bool:
        return keys is not None and len(keys().tenants) > 1

    failover = Failover(queue, settings.failover, pool, journal, has_tenants)
    pool.subscribe(failover)
    pool.subscribe(failover.poison_cache)
    freshness = Freshness(failover, desired)
    pool.subscribe(freshness)
    return failover, freshness


def _add_routes(app: Starlette, settings: CoordinatorSettings, core: Core) -> Authenticator | None:
    """Add the enabled routes; return what authenticates their requests, None without keys."""
    models, pool, queue, generation = core.models, core.pool, core.queue, core.generation
    authorization = AdminAuthorization(settings.admin.admin_key)
    router = ApiRouter()
    chat = ChatService(generation, models, settings.api)
    router.include(chat_routes(chat))
    router.include(responses_routes(chat, core.responses, queue.placed_memory))
    router.include(messages_routes(chat, models))
    if settings.api.render_route:
        router.include(submit_routes(chat, generation, models, settings.parsers))
    router.include(completion_routes(generation, models, settings.api))
    router.include(pooling_routes(core.pooling, models))
    router.include(render_routes(chat, generation, models))
    router.include(derender_routes(chat, models, settings.api.max_request_bytes))
    router.include(token_routes(chat, generation, models, core.aborts, settings.api, authorization))
    router.include(
        unrecorded_routes() if core.generation.recorder is None else trajectory_routes(core.generation.recorder)
    )
    if core.generation.recorder is not None:
        router.include(gateway_worker_routes(pool, core.status))
    admin = admin_routes(core.admin, core.status, settings.admin, authorization)
    router.include(admin)
    router.include(
        service_routes(pool, models, core.readiness, core.observers.metrics, core.generation.recorder is not None)
    )
    if core.observers.traffic is not None:
        prefixes = generation.prefixes.causes
        snapshot = Snapshot(core.coordinator_id, pool, core.status, models, queue, core.readiness, prefixes=prefixes)
        router.include(page_routes(snapshot, core.observers.traffic, core.observers.siblings))
    keys = core.keys
    free_paths = FREE_PATHS | DOCUMENTATION_PATHS | (PAGE_PATHS if settings.status_page else frozenset())
    security = Security(keys is not None, settings.admin.admin_key is not None, free_paths, authorization.guards)
    router.include(documentation_routes(router.routes, security))
    app.routes.extend(router.routes)
    return None if keys is None else Authenticator(keys, free_paths, admin.routes, core.accounts)


def is_loopback(address: str) -> bool:
    """Return whether an address is reachable only from this machine."""
    return ipaddress.ip_address(address).is_loopback


def _add_middleware(
    app: Starlette,
    settings: CoordinatorSettings,
    readiness: Readiness,
    listeners: list[RequestListener],
    authenticator: Authenticator | None,
) -> None:
    checks_host = settings.allowed_hosts or is_loopback(settings.host)
    app.add_middleware(
        RequestMiddleware,
        listeners,
        readiness=readiness,
        authenticator=authenticator,
        allowed_hosts=AllowedHosts(settings.allowed_hosts) if checks_host else None,
        bodies=settings.bodies,
        records_prompts=settings.observability.log_prompts,
        names_workers=settings.api.debug_headers,
        request_timeout_s=settings.admission.request_timeout_s,
    )
    if settings.trajectories.enabled:
        app.add_middleware(SessionPaths)
