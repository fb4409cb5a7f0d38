"""Faults: each kind of event of a script that breaks something, and the recovery from all of them.

One file beyond the usual length, since each kind of event is a method.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from tests.simulation.aborts import PlacedSequence, placed_sequences
from tests.simulation.client import SimulatedClient
from tests.simulation.http import HttpExchange
from tests.simulation.invariants import MODEL
from tests.simulation.operations import Operations
from tests.simulation.phases import StreamPhase, phases_of_coordinator, phases_on_worker
from tests.simulation.processes import CoordinatorHost, WorkerHost, worker_address
from tests.simulation.script import ScriptedEvent
from tests.simulation.world import Node
from tokenwire.worker.simulated_engine.faults import FaultKind

if TYPE_CHECKING:
    from tests.simulation.run import SimulationRun

_SLOW_FACTOR = 30.0
_REPLACED_AFTER_S = 6.0
"""How long a broken engine stays before its worker is replaced."""
_ENGINE_FAULTS = {"hang": FaultKind.HANG, "crash": FaultKind.CRASH, "slow_engine": FaultKind.SLOW}
_RECOVERY_ATTEMPTS = 20
_LATE_S = 1.5
"""A worker that an operation reaches so late has already received it from other coordinators."""
_RESUMED_POLL_S = 0.02
_RESUMED_POLLS = 100
_RESUMED_LATER_S = 0.5
_LONGEST_STEP_S = 300.0
_FORWARD_S = 0.5
"""A wall clock is set forward by events of a shorter length."""
_PHASE_POLL_S, _AT_ONCE, _BETWEEN = 0.002, 0.5, 0.75
_PHASE_POLLS = {StreamPhase.AT_END: 500, StreamPhase.BETWEEN: 1500}
_HELD_BACK_S, _HELD_BACK_IF_S = 1.0, 1.0
"""How long, by events of a shorter length."""
_ISOLATION_POLLS = 1000
_MOST_ISOLATED = 3
_JUST_BEGUN = 2
"""Tokens."""
WORKER_KILLED, WORKER_DRAINED, ENGINE_BROKEN = "worker killed", "worker drained", "engine broken"
CONNECTION_CUT, COORDINATOR_KILLED = "connection cut", "coordinator killed"
"""What hits streams."""
OTHER_WEIGHTS = 1
"""The seed of engines with other weights than most have."""


class Faults:
    """Injects events into the fleet of a run."""

    def __init__(self, run: "SimulationRun") -> None:
        self._run = run
        self._world = run.world
        self._network = run.network
        self.operations = Operations(run, self._delay_operation)
        self._over = False
        self._late: tuple[WorkerHost, float] | None = None
        """The worker that the next operation reaches late, and for how long nothing else gets there."""

    def inject(self, event: ScriptedEvent) -> None:
        """Let an event happen, and end after its length."""
        args = event.args
        worker = self._run.workers[args["worker"]]
        coordinator = self._run.coordinators[args["coordinator"]]
        if hasattr(self, f"_{event.kind}"):
            getattr(self, f"_{event.kind}")(worker, coordinator, args)
        else:
            self.operations.inject(event.kind, coordinator, args)

    def _happens(self, kind: str, worker: WorkerHost | None = None, what: str = "") -> None:
        """Count an event that takes effect; and in which phase the streams of a worker are that it hits."""
        self._run.seen[f"event {kind}"] += 1
        if worker is not None:
            for phase, count in phases_on_worker(self._run.coordinators, worker).items():
                self._run.seen[f"{what}: {phase}"] += count

    # Processes.

    def _kill(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        self._kill_worker("kill", worker, args)

    def _power_cut(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        self._kill_worker("power_cut", worker, args)

    def _kill_worker(self, kind: str, worker: WorkerHost, args: dict[str, Any]) -> None:
        if worker.is_running:
            self._happens(kind, worker, WORKER_KILLED)
            worker.kill(silent=kind == "power_cut")
        self._start_later(worker, args["length"])

    def _chase_resumed(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        """Kill the worker of a sequence that was lost before."""
        self._on_resumed(lambda resumed: self._kill_worker("chase_resumed", resumed.holder, args), args["draw"])

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
        self._terminate_worker("terminate", worker, args)

    def _terminate_worker(self, kind: str, worker: WorkerHost, args: dict[str, Any]) -> None:
        if not worker.is_ending:
            self._happens(kind, worker, WORKER_DRAINED)
            worker.terminate()
        self._start_later(worker, 8.0 + args["length"])

    def _drain(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        if not worker.is_ending:
            self._happens("drain", worker, WORKER_DRAINED)
            worker.drain(args["length"])

    def _freeze(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        self._freeze_node("freeze", worker.node, args["length"])

    def _freeze_coordinator(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        self._freeze_node("freeze_coordinator", coordinator.node, args["length"])

    def _kill_coordinator(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        """Kill a coordinator: some once one of their streams is at its end, others once a worker of theirs is lost."""
        if args["draw"] > _BETWEEN:
            self._kill_worker("power_cut", worker, args)
        self._world.root.spawn(self._kill_in_phase(coordinator, args))

    async def _kill_in_phase(self, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        awaited = StreamPhase.BETWEEN if args["draw"] > _BETWEEN else StreamPhase.AT_END
        polls = _PHASE_POLLS[awaited] if args["draw"] > _AT_ONCE else 0

        def phases() -> Counter[str]:
            return phases_of_coordinator(coordinator, self._run.workers, self._run.clients)

        while polls and not phases()[awaited]:
            await asyncio.sleep(_PHASE_POLL_S)
            polls -= 1
        if coordinator.is_running and not self._over:
            self._happens("kill_coordinator")
            for phase, count in phases().items():
                self._run.seen[f"{COORDINATOR_KILLED}: {phase}"] += count
            coordinator.kill(silent=args["draw"] * 1000 % 2 < 1)
        self._world.call_later(args["length"], coordinator.start, self._run.settings)

    def _terminate_coordinator(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        if not coordinator.is_ending:
            self._happens("terminate_coordinator")
            coordinator.terminate(drain_timeout_s=args["length"])
        self._world.call_later(args["length"] + 8.0, coordinator.start, self._run.settings)

    def _step_clock(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        """Set a coordinator's wall clock, mostly back."""
        self._happens("step_clock")
        step_s = _LONGEST_STEP_S * args["draw"] ** 2
        coordinator.clock.offset_s += step_s if args["length"] < _FORWARD_S else -step_s

    def _hang(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        self._break_engine("hang", worker, args)

    def _crash(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        self._break_engine("crash", worker, args)

    def _slow_engine(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        self._break_engine("slow_engine", worker, args)

    def _lie(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        """Let a worker announce what nobody ordered. Without a key, coordinators believe it."""
        if self._run.script.config["signed"] and worker.is_running and worker.server is not None:
            self._happens("lie")
            state = worker.server._controller.state
            worker.announce(self._run.witness.records.lie(MODEL, state, args["draw"]))
            self._world.call_later(args["length"] + _REPLACED_AFTER_S, self._replace, worker, worker.node)

    def _break_engine(self, kind: str, worker: WorkerHost, args: dict[str, Any]) -> None:
        if worker.is_running and worker.engine is not None:
            self._happens(kind, worker, ENGINE_BROKEN)
            worker.break_engine(_ENGINE_FAULTS[kind])
        self._world.call_later(args["length"] + _REPLACED_AFTER_S, self._replace, worker, worker.node)

    def _freeze_node(self, kind: str, node: Node | None, length: float) -> None:
        if node is not None and not node.dead and not node.frozen:
            self._happens(kind)
            node.freeze()
            self._world.call_later(length, node.thaw)

    def _start_later(self, worker: WorkerHost, after_s: float) -> None:
        self._world.call_later(after_s, worker.start, self._run.engine_settings)

    def _replace(self, worker: WorkerHost, node: Node | None) -> None:
        if worker.node is node:
            worker.kill(silent=False)
        worker.start(self._run.engine_settings)

    def _roll_out(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        self._restart_with("roll_out", OTHER_WEIGHTS, worker, args)

    def _roll_back(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        self._restart_with("roll_back", 0, worker, args)

    def _restart_with(self, kind: str, weights: int, worker: WorkerHost, args: dict[str, Any]) -> None:
        """Replace a worker by one with these weights, as a Deployment does: it drains, and the new one comes later."""
        worker.weights = weights
        self._terminate_worker(kind, worker, args)

    # The network.

    def _cut(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        self._cut_between("cut", worker, coordinator)

    def _cut_between(self, kind: str, worker: WorkerHost, coordinator: CoordinatorHost) -> None:
        if connections := self._network.between(worker.name, coordinator.name):
            self._happens(kind)
            for phase, count in phases_on_worker([coordinator], worker).items():
                self._run.seen[f"{CONNECTION_CUT}: {phase}"] += count
            for connection in connections:
                connection.cut()

    def _cut_resumed(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        """Cut the connection of a sequence that was lost before."""
        self._on_resumed(lambda resumed: self._cut_between("cut_resumed", resumed.holder, resumed.owner), args["draw"])

    def _stall(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        for connection in self._network.between(worker.name, coordinator.name):
            self._happens("stall")
            connection.lanes[args["draw"] < 0.5].hold(self._world.time() + args["length"])

    def _partition(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        self._happens("partition")
        self._network.block(worker.name, coordinator.name)
        self._world.call_later(args["length"], self._network.unblock, worker.name, coordinator.name)

    def _isolate_suspect(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        """Partition a coordinator from the worker of a young sequence, and from each one that it goes to then."""
        self._world.root.spawn(self._isolate(coordinator))

    async def _isolate(self, coordinator: CoordinatorHost) -> None:
        suspect, isolated = "", 0
        for _ in range(_ISOLATION_POLLS):
            placed = placed_sequences([coordinator], self._run.workers)
            young = [each for each in placed if each.gained <= _JUST_BEGUN and suspect in ("", each.request_id)]
            reachable = [each for each in young if not self._network.blocks(coordinator.name, each.holder.name)]
            if reachable:
                suspect, isolated = reachable[0].request_id, isolated + 1
                self._network.block(coordinator.name, reachable[0].holder.name)
                self._happens("isolate_suspect")
            if isolated == _MOST_ISOLATED:
                return
            await asyncio.sleep(_RESUMED_POLL_S)
            if self._over:
                return

    def _slow_link(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        self._happens("slow_link")
        self._network.slow_down(worker.name, coordinator.name, _SLOW_FACTOR)

    def _cut_client(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        exchanges = [each for each in self._network.connections if isinstance(each, HttpExchange)]
        for exchange in exchanges[: 1 + int(args["draw"] * 3)]:
            self._happens("cut_client")
            exchange.cut()

    def _late_operation(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        """Let the next operation reach a worker after the other coordinators have received it."""
        self._late = worker, _LATE_S + args["length"]

    def _delay_operation(self, coordinator: CoordinatorHost) -> None:
        if self._late is not None:
            (worker, length), self._late = self._late, None
            self._happens("late_operation")
            for connection in self._network.between(worker.name, coordinator.name):
                connection.to_server.hold(self._world.time() + length)

    def _flap_discovery(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        every = [each.address for each in self._run.workers]
        self._run.witness.unlisted += len(every) - len(args["subset"])
        if len(args["subset"]) < len(every) and coordinator.is_running:
            self._happens("flap_discovery")
        coordinator.list_workers([worker_address(index) for index in args["subset"]])
        self._world.call_later(args["length"], coordinator.list_workers, every)

    # Aborts that look for their moment.

    def _abort_resumed(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        """Abort a request that was lost before, by any coordinator."""
        self._on_resumed(
            lambda resumed: self.operations.abort("abort_resumed", coordinator, self._clients_of({resumed.request_id})),
            args["draw"],
        )

    def _abort_lost(self, worker: WorkerHost, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        """Abort the requests of a connection by any coordinator, and cut it once that is confirmed.

        In half of the cases nothing comes back through it meanwhile: then the one whose requests they are learns
        nothing of the abort, and wants to resume them.
        """
        placed = placed_sequences(self._run.coordinators, self._run.workers)
        if placed:
            chosen = placed[int(1000 * args["draw"]) % len(placed)]
            there = {each.request_id for each in placed if (each.owner, each.holder) == (chosen.owner, chosen.holder)}
            if args["length"] < _HELD_BACK_IF_S:
                for connection in self._network.between(chosen.holder.name, chosen.owner.name):
                    connection.to_client.hold(self._world.time() + _HELD_BACK_S)
            self.operations.abort(
                "abort_lost",
                coordinator,
                self._clients_of(there),
                lambda: self._cut_between("cut", chosen.holder, chosen.owner),
            )

    def _clients_of(self, request_ids: Collection[str]) -> list[SimulatedClient]:
        return [each for each in self._run.clients if each.request_id in request_ids]

    # The end of all faults.

    async def recover(self) -> None:
        """Heal the network, replace what is broken, and resume the fleet."""
        self._world.note("recovery")
        self._over = True
        self.operations.begin_recovery()
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
            if await self.operations.resume_fleet() and not any(ending):
                return
        run.violate("the fleet cannot be resumed")
