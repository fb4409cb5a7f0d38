"""One run of a fleet: plays a script, heals everything, and checks that all requests ended and nothing is left.

One file beyond the usual length, since a run is where all witnesses come together.
"""

import asyncio
import logging
import random
from collections import Counter
from dataclasses import dataclass
from typing import Any, TextIO

from starlette.types import ASGIApp

from tests.simulation.causes import Causes
from tests.simulation.chance import Escape
from tests.simulation.client import SimulatedClient
from tests.simulation.conversations import Conversations
from tests.simulation.coverage import reached
from tests.simulation.engines import Placements
from tests.simulation.faults import OTHER_WEIGHTS, Faults
from tests.simulation.http import HttpExchange
from tests.simulation.invariants import Epochs, leftovers, made_up, slots_problems, violations_now
from tests.simulation.network import Network
from tests.simulation.orphans import OrphanWatch
from tests.simulation.outcomes import STOPPED_AS_POISON, outcomes_of
from tests.simulation.processes import CoordinatorHost, WorkerHost, worker_address
from tests.simulation.progress import ProgressWatch
from tests.simulation.queues import QueueWitness
from tests.simulation.requests import http_request_of
from tests.simulation.resumptions import ResumptionWitness
from tests.simulation.script import STORE_EVENTS, UPGRADES, Script, ScriptedEvent
from tests.simulation.settings import coordinator_settings
from tests.simulation.shared_store import SharedHistory
from tests.simulation.slots import SlotWatch
from tests.simulation.tenants import Tenants, TenantWitness
from tests.simulation.upgrades import Upgrades
from tests.simulation.wall_clock import WallClock
from tests.simulation.witness import Witness
from tests.simulation.world import Node, World
from tokenwire.coordinator.app import Core
from tokenwire.worker.simulated_engine.settings import SimulationSettings

logging.disable(logging.CRITICAL)

_CHECK_S = 0.25
"""Interval of the checks of the whole fleet."""
_DRIFT = 0.01
"""The most by which a wall clock is too fast or too slow."""
_END_LIMIT_S = 150.0
_SETTLE_LIMIT_S = 60.0
"""How long after the end of all faults requests may take, and then the fleet."""


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a script."""

    seed: int
    trace: str
    violations: tuple[str, ...]
    virtual_s: float
    callbacks: int
    endings: Counter[str]
    """How the clients' requests ended."""
    reached: Counter[str]
    """How often what seldom happens has happened: a run that never got there says nothing about it."""


class SimulationRun:
    """A fleet, and what a script does to it."""

    def __init__(self, script: Script, log: TextIO | None = None) -> None:
        config = script.config
        self.script = script
        self.world = World(script.seed, config["lateness_s"], log)
        self.network = Network(self.world, config["latency_s"], config["window"])
        self.placements = Placements()
        self.witness = Witness(self.violate, config["signed"])
        self.witness.long_partitions = lambda: self.network.long_partitions
        self.clients: list[SimulatedClient] = []
        self.violations: list[str] = []
        self.tenants = Tenants(config["keys"])
        self._clients_by_id: dict[str, SimulatedClient] = {}
        self._tenant_witnesses: dict[Node, TenantWitness] = {}
        self.seen: Counter[str] = Counter()
        """How often what witnesses look for has happened."""
        self.engine_settings = SimulationSettings(**config["engine"])
        self.settings = coordinator_settings(config)
        addresses = [worker_address(index) for index in range(config["workers"])]
        self.workers = [
            WorkerHost(
                self.world,
                self.network,
                index,
                config["intake_s"],
                config.get("adapter_s", 0.0),
                self.placements,
                self._on_weights,
            )
            for index in range(config["workers"])
        ]
        for index in config.get("other_weights", ()):
            self.workers[index].weights = OTHER_WEIGHTS
        for index, worker in enumerate(self.workers):
            worker.batch_invariant = index not in config.get("batch_variant", ())
            worker.has_generators = index in config.get("generators", ())
        self.coordinators = [
            CoordinatorHost(
                self.world,
                self.network,
                index,
                addresses,
                self.witness,
                self._watch,
                self._wall_clock(index),
                config.get("behind_s", 0.0),
            )
            for index in range(config["coordinators"])
        ]
        self.faults = Faults(self)
        self.shared_history = self._shared_history(config.get("store"))
        self.conversations = Conversations(self.world, self.settings.history.ttl_s, self.shared_history)
        self.upgrades = Upgrades(self)
        self._epochs = Epochs()
        self._causes = Causes(self)
        self._client_node = self.world.node("clients")
        self._hosts = {host.name: host for host in self.coordinators}
        self.world.on_turn = self._check_turn

    def _wall_clock(self, index: int) -> WallClock:
        """Draw how wrong the wall clock of a coordinator's machine is."""
        skew_s = self.script.config.get("skew_s", 0.0)
        rng = random.Random(f"{self.script.seed} clock {index}")
        return WallClock(rng.uniform(-skew_s, skew_s), rng.uniform(-_DRIFT, _DRIFT) if skew_s else 0.0)

    def _watch(self, node: Node, core: Core, app: ASGIApp) -> ASGIApp:
        """Let witnesses judge a new coordinator process."""
        context_tokens = self.script.config["engine"]["max_model_len"]
        keys = self.script.config["keys"]
        witness = TenantWitness(app, keys, self.world, self.violate, self.seen, context_tokens)
        QueueWitness(
            core,
            self.settings.admission,
            self._expected_in_queue,
            self.violate,
            self.seen,
            self.witness.journeys,
            ResumptionWitness(core, self.seen).on_placed,
        )
        self._tenant_witnesses[node] = witness
        if self.shared_history is not None:
            self.shared_history.watch(node.name, core)
        return witness

    def _on_weights(self, instance: str, version: str, weights: str) -> None:
        if problem := self.witness.weights.engine_problem(version, weights):
            self.violate(f"{instance} {problem}")

    def _expected_in_queue(self, request_id: str) -> tuple[str, int, int] | None:
        client = self._clients_by_id.get(request_id)
        if client is None:
            return None
        tenants, spec = self.tenants, client.spec
        return tenants.share_of(spec), tenants.weight_of(spec), tenants.least_priority(spec)

    def _shared_history(self, config: dict[str, Any] | None) -> SharedHistory | None:
        if config is None:
            return None
        shared = SharedHistory(self, config)
        for index in shared.sharers:
            self.coordinators[index].history = shared.settings(self.settings.history.ttl_s)
        return shared

    def violate(self, problem: str) -> None:
        """Record a violation."""
        self.world.note("violation", problem)
        self.violations.append(f"{self.world.elapsed_s:.3f} {problem}")

    async def play(self) -> None:
        """Play the script to its end, then the recovery."""
        for worker in self.workers:
            worker.start(self.engine_settings)
        for coordinator in self.coordinators:
            coordinator.start(self.settings)
        for event in self.script.events:
            self.world.call_later(event.at, self._on_event, event)
        checks = asyncio.create_task(self._check_always())
        await asyncio.sleep(self.script.config["seconds"])
        await self.faults.recover()
        await self._wait_for_ends()
        await self._wait_for_rest()
        if self.shared_history is not None:
            await self.shared_history.probe()
        checks.cancel()
        await asyncio.sleep(_CHECK_S)  # for callbacks of what has just ended
        self.violations += [f"uncaught: {error}" for error in (*self.world.errors, *self.world.failures())]

    def _on_event(self, event: ScriptedEvent) -> None:
        self.world.note("event", event.kind, event.args)
        if event.kind == "request":
            self.send(event.args)
        elif event.kind in UPGRADES:
            self.upgrades.inject(event)
        elif event.kind in STORE_EVENTS:
            if self.shared_history is not None:
                self.shared_history.inject(event)
        else:
            self.faults.inject(event)

    def client_of(self, request_id: str) -> SimulatedClient | None:
        """Return the client of a request."""
        return self._clients_by_id.get(request_id)

    def send(self, spec: dict[str, Any]) -> None:
        """Send a request, unless it continues a chat that cannot be continued."""
        follows, earlier = spec["follows"], None
        if follows is not None:
            earlier = next((client for client in self.clients if client.name == follows), None)
            if earlier is None or not earlier.may_be_continued:
                return
        shares = earlier is not None and earlier.is_stored and self.tenants.may_share(spec, earlier.spec)
        host = self.coordinators[spec["coordinator"]]
        client = SimulatedClient(
            self.world,
            spec,
            self.placements,
            self.witness,
            self.violate,
            self.tenants,
            self.faults.operations.may_have_aborted,
            earlier=earlier,
            must_reuse=self.conversations.expectation(earlier if shares else None, host),
            error_problem=self._causes.problem,
            config=self.script.config,
        )
        self.clients.append(client)
        self._clients_by_id[client.request_id] = client
        http, exchange = host.http, None
        if http is not None and not http.node.dead and http.accepts:
            exchange = HttpExchange(self.network, self._client_node, http, http_request_of(spec, earlier))
        self._client_node.spawn(self._serve(client, exchange))

    async def _serve(self, client: SimulatedClient, exchange: HttpExchange | None) -> None:
        await client.run(exchange)
        if STOPPED_AS_POISON in outcomes_of(client):  # a client that asks again, as it should not
            self.send({**client.spec, "id": f"{client.name}again", "follows": None, "leave_s": None})

    def _check_turn(self, node: Node) -> None:
        """Check a coordinator each time that its process has run."""
        host = self._hosts.get(node.name)
        if host is not None and host.node is node:
            for problem in (*self._epochs.problems([host]), *slots_problems(host)):
                self.violate(problem)

    async def _check_always(self) -> None:
        watches = ProgressWatch(self), SlotWatch(self), OrphanWatch(self)
        while True:
            await asyncio.sleep(_CHECK_S)
            for problem in violations_now(self.coordinators):
                self.violate(problem)
            if self.script.config["signed"]:
                for problem in made_up(self.coordinators, self.witness.records):
                    self.violate(problem)
            for witness in self._tenant_witnesses.values():
                witness.observe()
            for watch in watches:
                watch.check()

    async def _wait_for_ends(self) -> None:
        limit = self.world.time() + _END_LIMIT_S
        while (  # noqa: ASYNC110 (polls in virtual time, which costs nothing)
            open_clients := [each for each in self.clients if not each.ending]
        ) and self.world.time() < limit:
            await asyncio.sleep(0.5)
        for client in open_clients:
            self.violate(f"{client.name} never ended")

    async def _wait_for_rest(self) -> None:
        limit = self.world.time() + _SETTLE_LIMIT_S
        while (  # noqa: ASYNC110 (as above)
            problems := self._leftovers()
        ) and self.world.time() < limit:
            await asyncio.sleep(1.0)
        for problem in [*problems, *self.upgrades.problems()]:
            self.violate(problem)
        for coordinator in self.coordinators:
            self._check_tenants_metrics(coordinator)

    def _check_tenants_metrics(self, coordinator: CoordinatorHost) -> None:
        if coordinator.core is not None and coordinator.node is not None and self.script.config["keys"]:
            counted = coordinator.core.observers.metrics.tenants
            assert counted is not None
            problem = self._tenant_witnesses[coordinator.node].metrics_problem(counted)
            if problem:
                self.violate(f"{coordinator.name} {problem}")

    def _leftovers(self) -> list[str]:
        shared = [] if self.shared_history is None else self.shared_history.leftovers()
        return leftovers(self.coordinators, self.workers) + shared


def run_script(script: Script, log: TextIO | None = None) -> Result:
    """Run a script in a world of its own."""
    run = SimulationRun(script, log)
    world = run.world
    try:
        world.run(run.play())
    except Escape as escape:
        run.violate(f"escape: {escape}")
    except Exception as error:
        run.violate(f"the simulation failed: {error!r}")
    result = Result(
        script.seed,
        world.trace(),
        tuple(run.violations),
        world.elapsed_s,
        world.callbacks,
        Counter(client.ending or "none" for client in run.clients),
        reached(run),
    )
    del run  # what holds tasks of killed processes
    world.bury()
    return result
