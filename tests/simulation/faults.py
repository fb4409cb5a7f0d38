"""Faults and operations: each kind of event of a script, and the recovery from all of them.

One file beyond the usual length, since each kind of event is a method.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import TYPE_CHECKING, Any

from tests.simulation.aborts import PlacedSequence, is_aborted_everywhere, is_reached, placed_sequences
from tests.simulation.client import SimulatedClient
from tests.simulation.engines import RecordedEngine
from tests.simulation.http import HttpExchange
from tests.simulation.invariants import MODEL, epochs_of
from tests.simulation.processes import CoordinatorHost, WorkerHost, worker_address
from tests.simulation.script import ScriptedEvent
from tests.simulation.versions import MISSING
from tests.simulation.world import Node
from tokenwire.coordinator.app import Core
from tokenwire.errors import TokenwireError
from tokenwire.worker.simulated_engine.faults import FaultKind

if TYPE_CHECKING:
    from tests.simulation.run import SimulationRun

_SLOW_FACTOR = 30.0
_REPLACED_AFTER_S = 6.0
"""How long a broken engine stays before its worker is replaced."""
_ENGINE_FAULTS = {"hang": FaultKind.HANG, "crash": FaultKind.CRASH, "slow_engine": FaultKind.SLOW}
_RECOVERY_ATTEMPTS = 20
_ABORT_S = 1.0
"""After so long, what was aborted has got its last token, slow links and readers included."""
_DELAYS = frozenset({"freeze", "freeze_coordinator", "stall", "partition", "slow_link", "power_cut", "late_operation"})
_LATE_S = 1.5
"""A worker that an operation reaches so late has already received it from other coordinators."""
_UNEVEN_POLL_S = 0.005
_UNEVEN_POLLS = 1000
_RESUMED_POLL_S = 0.02
_RESUMED_POLLS = 100
_RESUMED_LATER_S = 0.5
_JUST_BEGUN = 2
"""Tokens."""
OTHER_WEIGHTS = 1
"""The seed of engines with other weights than most have."""
WEIGHTS = ("/usr", "/etc", "/bin")
"""Directories that every machine has: a simulated engine reads only their names."""


class Faults:
    """Injects events into the fleet of a run."""

    def __init__(self, run: "SimulationRun") -> None:
        self._run = run
        self._world = run.world
        self._network = run.network
        self._begun = 0
        """Operations that have begun, the recovery among them."""
        self._under_way = 0
        """Operations that have not ended."""
        self._late: tuple[WorkerHost, float] | None = None
        """The worker that the next operation reaches late, and for how long nothing else gets there."""

    def inject(self, event: ScriptedEvent) -> None:
        """Let an event happen, and end after its length."""
        args = event.args
        worker = self._run.workers[args["worker"]]
        coordinator = self._run.coordinators[args["coordinator"]]
        getattr(self, f"_{event.kind}")(worker, coordinator, args)

    # Processes.

    def _kill(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        worker.kill(silent=False)
        self._start_later(worker, args["length"])

    def _power_cut(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        worker.kill(silent=True)
        self._start_later(worker, args["length"])

    def _chase_resumed(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        """Kill the worker of a sequence that was lost before."""
        self._on_resumed(lambda resumed: self._kill(resumed.holder, coordinator, args), args["draw"])

    def _on_resumed(self, act: Callable[[PlacedSequence], object], draw: float) -> None:
        """Act on a sequence that was lost before, soon after one has begun again."""
        self._world.root.spawn(self._wait_for_resumed(act, draw * _RESUMED_LATER_S))

    async def _wait_for_resumed(self, act: Callable[[PlacedSequence], object], later_s: float) -> None:
        for _ in range(_RESUMED_POLLS):
            placed = placed_sequences(self._run.coordinators, self._run.workers)
            resumed = sorted((each for each in placed if each.was_lost), key=lambda each: each.gained)
            if resumed and resumed[0].gained <= _JUST_BEGUN:
                break
            await asyncio.sleep(_RESUMED_POLL_S)
        await asyncio.sleep(later_s)
        for youngest in resumed[:1]:
            act(youngest)

    def _terminate(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        worker.terminate()
        self._start_later(worker, 8.0 + args["length"])

    def _drain(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        worker.drain(args["length"])

    def _freeze(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        self._freeze_node(worker.node, args["length"])

    def _freeze_coordinator(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        self._freeze_node(coordinator.node, args["length"])

    def _kill_coordinator(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        coordinator.kill(silent=args["draw"] < 0.5)
        self._world.call_later(args["length"], coordinator.start, self._run.settings)

    def _terminate_coordinator(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        coordinator.terminate(drain_timeout_s=args["length"])
        self._world.call_later(args["length"] + 8.0, coordinator.start, self._run.settings)

    def _hang(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        self._break_engine("hang", worker, args)

    def _crash(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        self._break_engine("crash", worker, args)

    def _slow_engine(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        self._break_engine("slow_engine", worker, args)

    def _lie(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        """Let a worker announce what nobody ordered. Without a key, coordinators believe it."""
        if self._run.script.config["signed"] and worker.is_running and worker.server is not None:
            state = worker.server._controller.state
            worker.announce(self._run.witness.records.lie(MODEL, state, args["draw"]))
            self._world.call_later(args["length"] + _REPLACED_AFTER_S, self._replace, worker, worker.node)

    def _break_engine(self, kind: str, worker: WorkerHost, args: dict[str, Any]) -> None:
        worker.break_engine(_ENGINE_FAULTS[kind])
        self._world.call_later(args["length"] + _REPLACED_AFTER_S, self._replace, worker, worker.node)

    def _freeze_node(self, node: Node | None, length: float) -> None:
        if node is not None and not node.dead and not node.frozen:
            node.freeze()
            self._world.call_later(length, node.thaw)

    def _start_later(self, worker: WorkerHost, after_s: float) -> None:
        self._world.call_later(after_s, worker.start, self._run.engine_settings)

    def _replace(self, worker: WorkerHost, node: Node | None) -> None:
        if worker.node is node:
            worker.kill(silent=False)
        worker.start(self._run.engine_settings)

    def _roll_out(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        self._restart_with(OTHER_WEIGHTS, worker, args)

    def _roll_back(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        self._restart_with(0, worker, args)

    def _restart_with(self, weights: int, worker: WorkerHost, args: dict[str, Any]) -> None:
        """Replace a worker by one with these weights, as a Deployment does: it drains, and the new one comes later."""
        worker.weights = weights
        worker.terminate()
        self._start_later(worker, 8.0 + args["length"])

    # The network.

    def _cut(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        for connection in self._network.between(worker.name, coordinator.name):
            connection.cut()

    def _cut_resumed(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        """Cut the connection of a sequence that was lost before."""
        self._on_resumed(lambda resumed: self._cut(resumed.holder, resumed.owner, args), args["draw"])

    def _stall(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        for connection in self._network.between(worker.name, coordinator.name):
            connection.lanes[args["draw"] < 0.5].hold(self._world.time() + args["length"])

    def _partition(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        self._network.block(worker.name, coordinator.name)
        self._world.call_later(args["length"], self._network.unblock, worker.name, coordinator.name)

    def _slow_link(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        self._network.slow_down(worker.name, coordinator.name, _SLOW_FACTOR)

    def _cut_client(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        exchanges = [each for each in self._network.connections if isinstance(each, HttpExchange)]
        for exchange in exchanges[: 1 + int(args["draw"] * 3)]:
            exchange.cut()

    def _late_operation(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        """Let the next operation reach a worker after the other coordinators have received it."""
        self._late = worker, _LATE_S + args["length"]

    def _delay_operation(self, coordinator: CoordinatorHost) -> None:
        if self._late is not None:
            (worker, length), self._late = self._late, None
            for connection in self._network.between(worker.name, coordinator.name):
                connection.to_server.hold(self._world.time() + length)

    def _flap_discovery(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        every = [each.address for each in self._run.workers]
        self._run.witness.unlisted += len(every) - len(args["subset"])
        coordinator.list_workers([worker_address(index) for index in args["subset"]])
        self._world.call_later(args["length"], coordinator.list_workers, every)

    # Operations.

    def _pause_abort(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        self._operate(coordinator, lambda core: self._pause(core, "abort", args))

    def _pause_keep(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        self._operate(coordinator, lambda core: self._pause(core, "keep", args))

    def _pause_wait(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        self._operate(coordinator, lambda core: self._pause(core, "wait", args))

    async def _pause(self, core: Core, mode: str, args: dict[str, Any]) -> None:
        begun, alone = self._begun, self._under_way == 1
        listed = {session.address for session in core.pool.sessions}
        running = {engine: engine.sequences for engine in self._engines(listed)}
        paused = await self._try(core.admin.pause(None, mode, False))
        engines = self._engines(listed)
        before = {engine: engine.tokens_total for engine in engines}
        if paused and mode == "abort":  # whatever else was ordered meanwhile
            for engine in engines:
                if engine.sequences & running.get(engine, set()):
                    self._run.violate(f"{engine.instance} goes on with sequences after a pause with abort")
        await asyncio.sleep(args["length"])
        if paused and alone and self._begun == begun:
            for engine in engines:
                if engine.tokens_total != before[engine]:
                    self._run.violate(f"{engine.instance} generated tokens during a pause ({mode})")
        await self._try(core.admin.resume(None))

    def _engines(self, addresses: Collection[str]) -> list[RecordedEngine]:
        """Return the engines that operations are for: a worker that lies is set aside."""
        hosts = (each for each in self._run.workers if each.address in addresses and each.is_running)
        honest = (host for host in hosts if host.node is not None and not host.node.lies)
        return [host.engine for host in honest if host.engine is not None]

    def _sleep(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        async def sleep_and_wake(core: Core) -> None:
            await self._try(core.admin.sleep(None, 1, "keep"))
            await asyncio.sleep(args["length"])
            await self._try(core.admin.wake_up(None, []))

        self._operate(coordinator, sleep_and_wake)

    def _label_weights(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        self._operate(coordinator, lambda core: core.admin.set_weight_version(None, f"v{args['draw']}"))

    def _load_weights(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        path = WEIGHTS[int(args["draw"] * 1000) % len(WEIGHTS)]
        self._operate(coordinator, lambda core: core.admin.load_weights(None, path, path.rpartition("/")[2], True))

    def _load_missing_weights(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        self._operate(coordinator, lambda core: core.admin.load_weights(None, MISSING, f"no{args['draw']}", True))

    def _load_adapter(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        replace, path = args["draw"] < 0.5, f"/adapters/{args['draw']}"
        self._change_adapter(
            coordinator, args["adapter"], True, lambda core, name: core.admin.load_lora(None, name, path, replace)
        )

    def _unload_adapter(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        self._change_adapter(coordinator, args["adapter"], False, lambda core, name: core.admin.unload_lora(name))

    def _change_adapter(
        self,
        coordinator: CoordinatorHost,
        name: str,
        loads: bool,
        change: Callable[[Core, str], Coroutine[Any, Any, object]],
    ) -> None:
        ledger, node = self._run.witness.adapters, coordinator.node

        async def run(core: Core) -> None:
            number, begun, alone = ledger.begin(name), self._begun, self._under_way == 1
            confirmed = await self._try(change(core, name))
            if confirmed and alone and begun == self._begun and node is not None:
                ledger.confirm(name, node, number, loads)
                self._run.seen["adapter loaded" if loads else "adapter unloaded"] += 1

        self._operate(coordinator, run)

    def _label_meanwhile(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        """Label the weights while another operation has reached only some of the workers."""

        async def label() -> None:
            for _ in range(_UNEVEN_POLLS):
                if len(epochs_of(self._run.workers)) > 1:
                    self._label_weights(worker, coordinator, args)
                    return
                await asyncio.sleep(_UNEVEN_POLL_S)

        self._world.root.spawn(label())

    def _reset_cache(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        self._operate(coordinator, lambda core: core.admin.reset_cache(None, args["draw"] < 0.5, False))

    def _abort(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        open_clients = [each for each in self._run.clients if not each.ending]
        self._abort_clients(coordinator, open_clients[: 1 + int(args["draw"] * 5)])

    def _abort_resumed(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        """Abort a request that was lost before, by any coordinator."""
        self._on_resumed(
            lambda resumed: self._abort_clients(coordinator, self._clients_of({resumed.request_id})), args["draw"]
        )

    def _abort_lost(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        """Abort the requests of a connection by any coordinator, and cut it once that is confirmed."""
        placed = placed_sequences(self._run.coordinators, self._run.workers)
        if placed:
            chosen = placed[int(1000 * args["draw"]) % len(placed)]
            there = {each.request_id for each in placed if (each.owner, each.holder) == (chosen.owner, chosen.holder)}
            self._abort_clients(
                coordinator, self._clients_of(there), lambda: self._cut(chosen.holder, chosen.owner, args)
            )

    def _clients_of(self, request_ids: Collection[str]) -> list[SimulatedClient]:
        return [each for each in self._run.clients if each.request_id in request_ids]

    def _abort_clients(
        self,
        coordinator: CoordinatorHost,
        aborted: list[SimulatedClient],
        on_confirmed: Callable[[], None] = lambda: None,
    ) -> None:
        # Slow readers still get what was generated before, and those who wait for a whole reply get all of it.
        readers = [each for each in aborted if each.spec["stream"] and not each.spec["read_delay_s"]]

        async def abort(core: Core) -> None:
            reached = [each for each in readers if is_reached(each, coordinator, self._run.coordinators)]
            if await self._try(core.aborts.by_id([each.request_id for each in aborted])):
                on_confirmed()
                await asyncio.sleep(_ABORT_S)
                before = {client: client.tokens for client in reached if not client.ending}
                generated = {client: self._generated(client) for client in reached}
                await asyncio.sleep(_ABORT_S)
                if self._run.upgrades.revives_aborted:
                    return
                for client in reached:
                    if client.server_node is coordinator.node and client.tokens > before.get(client, client.tokens):
                        self._run.violate(f"{client.name} got tokens after its abort")
                    known = is_aborted_everywhere(client, self._run.workers) and not self._delays_commands
                    if known and self._generated(client) > generated[client]:
                        self._run.violate(f"{client.name} goes on after its abort")

        self._operate(coordinator, abort)

    def _generated(self, client: SimulatedClient) -> int:
        """Return the number of tokens that engines have generated for a client."""
        return sum(len(each.generated) for each in self._run.placements.get(client.request_id, ()))

    @property
    def _delays_commands(self) -> bool:
        """Whether a command may be under way for long: one that resumes a request then seems younger than its abort."""
        return any(event.kind in _DELAYS for event in self._run.script.events)

    def _operate(self, coordinator: CoordinatorHost, operation: Callable[[Core], Coroutine[Any, Any, object]]) -> None:
        if coordinator.node is not None and coordinator.core is not None and coordinator.is_running:
            self._begun += 1
            self._under_way += 1
            self._delay_operation(coordinator)
            coordinator.node.spawn(self._count(operation(coordinator.core)))

    async def _count(self, operation: Coroutine[Any, Any, object]) -> None:
        await self._try(operation)
        self._under_way -= 1

    async def _try(self, operation: Coroutine[Any, Any, object]) -> bool:
        try:
            await operation
        except TokenwireError as error:
            self._world.note("operation failed", type(error).__name__, error.message)
            return False
        return True

    # The end of all faults.

    async def recover(self) -> None:
        """Heal the network, replace what is broken, and resume the fleet."""
        self._world.note("recovery")
        self._begun += 1
        self._network.heal()
        run = self._run
        run.upgrades.stop()
        if run.shared_history is not None:
            run.shared_history.recover()
        for node in self._world.nodes:
            node.thaw()
        every = [worker.address for worker in run.workers]
        for attempt in range(_RECOVERY_ATTEMPTS):
            for coordinator in run.coordinators:
                coordinator.start(run.settings)
                coordinator.list_workers(every)
            for worker in run.workers:
                # A drained worker stays drained, and a hanging one hangs, until somebody replaces it.
                if not worker.is_running or worker.is_ending or (attempt == 0 and worker.broken):
                    self._replace(worker, worker.node)
            await asyncio.sleep(8.0)
            ending = [each.is_ending for each in run.workers] + [each.is_ending for each in run.coordinators]
            if await self._resume_fleet() and not any(ending):
                return
        run.violate("the fleet cannot be resumed")

    async def _resume_fleet(self) -> bool:
        first = self._run.coordinators[0]
        if first.core is None or first.node is None or not first.is_running:
            first.start(self._run.settings)
            return False
        self._begun += 1
        # At the same time: neither may make the other fail.
        resumed = first.node.spawn(self._try(first.core.admin.resume(None)))
        woken = first.node.spawn(self._try(first.core.admin.wake_up(None, [])))
        return all([await resumed, await woken])
