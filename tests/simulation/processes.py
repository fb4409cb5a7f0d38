"""Workers and coordinators as production puts them together, each in a process of its own."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from starlette.types import ASGIApp

from tests.simulation.engines import Placements, RecordedEngine
from tests.simulation.http import HttpServer
from tests.simulation.network import Network
from tests.simulation.rpc_client import SimulatedChannels
from tests.simulation.rpc_server import SimulatedPort
from tests.simulation.slow_pace import SlowPace
from tests.simulation.wall_clock import WallClock
from tests.simulation.witness import Witness
from tests.simulation.world import Node, World
from tokenwire.coordinator.app import Core, build_app, build_core
from tokenwire.coordinator.fleet.discovery.source import Update
from tokenwire.coordinator.history.settings import HistorySettings
from tokenwire.coordinator.settings import CoordinatorSettings
from tokenwire.errors import TokenwireError
from tokenwire.protocol.version import MINOR
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.server import WorkerServer
from tokenwire.worker.settings import WorkerSettings
from tokenwire.worker.simulated_engine.faults import FaultKind
from tokenwire.worker.simulated_engine.settings import SimulationSettings

_DRAIN_TIMEOUT_S = 4.0
_NAMES_NOISE = 7
"""The minor version with which workers say which noise seeds have."""

Watch = Callable[[Node, Core, ASGIApp], ASGIApp]


def worker_address(index: int) -> str:
    """Return the address of a worker."""
    return f"10.0.0.{index + 1}:50051"


class WorkerHost:
    """A host where worker processes run, one after the other."""

    def __init__(
        self,
        world: World,
        network: Network,
        index: int,
        intake_s: float,
        adapter_s: float,
        placements: Placements,
        on_weights: Callable[[str, str, str], None],
    ) -> None:
        self.name = f"w{index}"
        self.address = worker_address(index)
        self.node: Node | None = None
        self.server: WorkerServer | None = None
        self.engine: RecordedEngine | None = None
        self.minor = MINOR
        """The minor version of the protocol that its next process has."""
        self.weights = 0
        """The seed of its engines, which stands for the weights that they start with."""
        self.batch_invariant = True
        """Whether tokens of its engines do not depend on what else they compute."""
        self.has_generators = False
        """Whether its engines draw noise from a generator, whatever those of the fleet do."""
        self.broken = False
        """Whether its engine was broken, so that it must be replaced."""
        self._world = world
        self._network = network
        self._intake_s = intake_s
        self._adapter_s = adapter_s
        self._placements = placements
        self._on_weights = on_weights
        self._shutdown: asyncio.Event | None = None

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self.node is not None and not self.node.dead

    @property
    def is_ending(self) -> bool:
        """Whether there is no process, or one that drains."""
        return not self.is_running or self.server is None or self.server.welcome().draining

    def start(self, settings: SimulationSettings) -> None:
        """Start a process if there is none."""
        if not self.is_running:
            self.node, self.broken = self._world.node(self.name), False
            self.node.minor, self.node.checkpoint = self.minor, self.weights
            self.node.spawn(self._main(self.node, settings))

    async def _main(self, node: Node, settings: SimulationSettings) -> None:
        self._shutdown = asyncio.Event()
        self.engine = RecordedEngine(
            replace(settings, seed=self.weights, seeds="generator" if self.has_generators else settings.seeds),
            f"{self.name}/{node.number}",
            self._intake_s,
            self._adapter_s,
            self._placements,
            self._on_weights,
            self.batch_invariant,
        )
        if node.minor >= _NAMES_NOISE:
            node.seeded_noise = self.engine.capabilities().seeded_noise
        server = WorkerServer(
            self.engine, WorkerSettings(self.address, drain_timeout_s=_DRAIN_TIMEOUT_S), SimulatedPort(self._network)
        )
        self.server = server
        try:
            await server.startup()
            await server.serve(self._shutdown)
        except TokenwireError:
            pass  # the command exits with 1
        await server.stop()
        self.kill(silent=False)

    def terminate(self) -> None:
        """Send SIGTERM."""
        if self.node is not None and self.is_running and self._shutdown is not None:
            self.node.told_to_end = True
            self._shutdown.set()

    def drain(self, deadline_s: float) -> None:
        """Drain, as by an operator."""
        if self.is_running and self.node is not None and self.server is not None:
            self.node.told_to_end = True
            self.node.spawn(self.server.drain(deadline_s))

    def kill(self, silent: bool) -> None:
        """Send SIGKILL; `silent`: cut its power, so that no connection is closed."""
        if self.node is not None and self.is_running:
            self.node.kill()
            self._network.remove(self.node, silent)

    def announce(self, state: pb.ServingState) -> None:
        """Announce a state that the worker does not have, now and to coordinators that connect later."""
        if self.node is not None and self.is_running and self.server is not None:
            self.broken = self.node.lies = True
            self.server._controller._published = state
            self.node.call(self.server._broadcast_serving_state, state)

    def break_engine(self, kind: FaultKind) -> None:
        """Inject a fault into the engine."""
        if self.node is not None and self.is_running and self.engine is not None:
            self.broken = self.node.harmed = True
            self.engine.break_down(kind)


def _ignore(addresses: Collection[str]) -> None:
    """Take no update: there is no process, or it has stopped its discovery."""


class ScriptedDiscovery:
    """Discovery that lists what it is given."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses
        self._update: Update = _ignore

    async def run(self, update: Update) -> None:
        """Call `update` on every change."""
        self._update = update
        update(self._addresses)
        try:
            await asyncio.Event().wait()
        finally:
            self._update = _ignore

    def list(self, addresses: Sequence[str]) -> None:
        """List other addresses."""
        self._addresses = addresses
        self._update(addresses)


class CoordinatorHost:
    """A host where coordinator processes run, one after the other."""

    def __init__(
        self,
        world: World,
        network: Network,
        index: int,
        workers: Sequence[str],
        witness: Witness,
        watch: Watch,
        clock: WallClock,
        behind_s: float = 0.0,
    ) -> None:
        """`watch` puts witnesses into a new process, and returns what stands before its application.

        behind_s: how long frames wait after each dispatch, because it is behind its load.
        """
        self.name = f"c{index}"
        self.clock = clock
        self._witness = witness
        self._watch = watch
        self._behind_s = behind_s
        self.node: Node | None = None
        self.core: Core | None = None
        self.http: HttpServer | None = None
        self.source = ScriptedDiscovery(workers)
        self._workers = workers
        self._world = world
        self._network = network
        self._stopped: asyncio.Event | None = None
        self.minor = MINOR
        """The minor version of the protocol that its next process has."""
        self.history: HistorySettings | None = None
        """Where it keeps conversations; None: as all."""

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self.node is not None and not self.node.dead

    @property
    def is_ending(self) -> bool:
        """Whether there is no process, or one that stops."""
        return not self.is_running or self.core is None or self.core.readiness.stopping

    def start(self, settings: CoordinatorSettings) -> None:
        """Start a process if there is none."""
        if not self.is_running:
            self.node = self._world.node(self.name)
            self.node.minor, self.node.clock = self.minor, self.clock
            self.source = ScriptedDiscovery(self._workers)
            self.node.context.run(self._build, settings, self.node)

    def _build(self, settings: CoordinatorSettings, node: Node) -> None:
        settings = replace(settings, history=self.history or settings.history)
        self.core = build_core(
            settings, coordinator_id=self.name, channels=SimulatedChannels(self._network, self._witness)
        )
        if self._behind_s:
            self.core.pool.pace = SlowPace(self._behind_s)
        app = build_app(settings, self.core, {"simulated": self.source})
        self.http = HttpServer(node, self._watch(node, self.core, app))
        self._stopped = asyncio.Event()
        node.spawn(self._main(app, node, self._stopped))

    async def _main(self, app: Any, node: Node, stopped: asyncio.Event) -> None:
        async with app.router.lifespan_context(app):
            await stopped.wait()
        node.kill()
        self._network.remove(node, silent=False)

    def terminate(self, drain_timeout_s: float) -> None:
        """Send SIGTERM: accept nothing, finish what is being served within the timeout, then end."""
        if self.node is not None and self.is_running:
            self.node.told_to_end = True
            self.node.spawn(self._shut_down(self.node, drain_timeout_s))

    async def _shut_down(self, node: Node, drain_timeout_s: float) -> None:
        http, core, stopped = self.http, self.core, self._stopped
        assert http is not None
        assert core is not None
        assert stopped is not None
        core.readiness.stopping = True
        http.accepts = False
        if http.tasks:
            await asyncio.wait(list(http.tasks), timeout=drain_timeout_s)
        core.readiness.out_of_time = node.out_of_time = True
        for task in list(http.tasks):
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*http.tasks, return_exceptions=True)
        stopped.set()

    def kill(self, silent: bool) -> None:
        """Send SIGKILL; `silent`: cut its power."""
        if self.node is not None and self.is_running:
            self.node.kill()
            self._network.remove(self.node, silent)

    def list_workers(self, addresses: Sequence[str]) -> None:
        """Let discovery list other workers, if there is a process."""
        if self.node is not None and self.is_running:
            self.node.call(self.source.list, addresses)
