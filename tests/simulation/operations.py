"""What operators and trainers do to a fleet, through the admin routes, and what must hold after each of it."""

import asyncio
import math
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.simulation.aborts import engines_that_know, is_reached
from tests.simulation.client import SimulatedClient
from tests.simulation.engines import RecordedEngine
from tests.simulation.invariants import epochs_of
from tests.simulation.operator import Operator
from tests.simulation.processes import CoordinatorHost
from tests.simulation.tenants import ABORT_ROUTE
from tests.simulation.versions import MISSING

if TYPE_CHECKING:
    from tests.simulation.run import SimulationRun

_ABORT_S = 1.0
"""After so long, what was aborted has got its last token, slow links and readers included."""
_DELAYS = frozenset({"freeze", "freeze_coordinator", "stall", "partition", "slow_link", "power_cut", "late_operation"})
_UNEVEN_POLL_S = 0.005
_UNEVEN_POLLS = 1000
WEIGHTS = ("/usr", "/etc", "/bin")
"""Directories that every machine has: a simulated engine reads only their names."""

OnConfirmed = Callable[[], None]


@dataclass(slots=True)
class _Pause:
    """A pause with abort, until it was answered."""

    over_at: float = math.inf


class Operations:
    """Carries out the operations of a run."""

    def __init__(self, run: "SimulationRun", on_begin: Callable[[CoordinatorHost], None]) -> None:
        """`on_begin` is called before each operation."""
        self._run = run
        self._world = run.world
        self._operator = Operator(run)
        self._on_begin = on_begin
        self._begun = 0
        """Operations that have begun, the recovery among them."""
        self._under_way = 0
        """Operations that have not ended."""
        self._aborted: set[str] = set()
        """Ids of requests that were to be aborted."""
        self._pauses_with_abort: list[_Pause] = []

    def inject(self, kind: str, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        """Begin an operation."""
        getattr(self, f"_{kind}")(coordinator, args)

    def _operate(self, kind: str, coordinator: CoordinatorHost, operation: Coroutine[Any, Any, bool]) -> None:
        """Run an operation, unless there is nobody to ask; count it once it is confirmed."""
        if coordinator.core is None or not coordinator.is_running:
            operation.close()
            return
        self._begun += 1
        self._under_way += 1
        self._on_begin(coordinator)
        self._operator.node.spawn(self._count(kind, operation))

    async def _count(self, kind: str, operation: Coroutine[Any, Any, bool]) -> None:
        try:
            self._run.seen[f"event {kind}"] += await operation
        finally:
            self._under_way -= 1

    # Pauses.

    def _pause_abort(self, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        self._operate("pause_abort", coordinator, self._pause(coordinator, "abort", args))

    def _pause_keep(self, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        self._operate("pause_keep", coordinator, self._pause(coordinator, "keep", args))

    def _pause_wait(self, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        self._operate("pause_wait", coordinator, self._pause(coordinator, "wait", args))

    async def _pause(self, coordinator: CoordinatorHost, mode: str, args: dict[str, Any]) -> bool:
        begun, alone, pause = self._begun, self._under_way == 1, _Pause()
        if mode == "abort":
            self._pauses_with_abort.append(pause)
        listed: set[str] = set()
        running: dict[RecordedEngine, set[object]] = {}

        def on_served() -> None:
            assert coordinator.core is not None
            listed.update(session.address for session in coordinator.core.pool.sessions)
            running.update((engine, set(engine.sequences)) for engine in self._engines(listed))

        # vLLM's route, and the one of Dynamo.
        path = "/pause" if args["draw"] < 0.5 else "/v1/rl/pause"
        paused = await self._operator.call(coordinator, path, {"mode": mode, "clear_cache": False}, on_served)
        pause.over_at = self._world.time()
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
        await self._operator.call(coordinator, "/resume" if args["draw"] < 0.5 else "/v1/rl/resume", {})
        return paused

    def _engines(self, addresses: Collection[str]) -> list[RecordedEngine]:
        """Return the engines that operations are for: a worker that lies is set aside."""
        hosts = (each for each in self._run.workers if each.address in addresses and each.is_running)
        honest = (host for host in hosts if host.node is not None and not host.node.lies)
        return [host.engine for host in honest if host.engine is not None]

    def _sleep(self, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        async def sleep_and_wake() -> bool:
            asleep = await self._operator.call(coordinator, "/sleep", {"level": 1, "mode": "keep"})
            await asyncio.sleep(args["length"])
            await self._operator.call(coordinator, "/wake_up", {})
            return asleep

        self._operate("sleep", coordinator, sleep_and_wake())

    # Weights, adapters and caches.

    def _call(self, kind: str, coordinator: CoordinatorHost, path: str, fields: dict[str, Any]) -> None:
        self._operate(kind, coordinator, self._operator.call(coordinator, path, fields))

    def _label_weights(self, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        self._call("label_weights", coordinator, "/update_weight_version", {"new_version": f"v{args['draw']}"})

    def _load_weights(self, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        directory = WEIGHTS[int(args["draw"] * 1000) % len(WEIGHTS)]
        path = "/update_weights" if args["draw"] < 0.5 else "/v1/rl/update_weights"
        self._call("load_weights", coordinator, path, {"weight_dir": directory})

    def _load_missing_weights(self, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        fields = {"weight_dir": MISSING, "weight_version": f"no{args['draw']}"}

        async def load() -> bool:
            if loaded := await self._operator.call(coordinator, "/v1/rl/update_weights", fields):
                self._run.violate("weights were loaded from a directory that nobody has")
            return not loaded

        self._operate("load_missing_weights", coordinator, load())

    def _label_meanwhile(self, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        """Label the weights while another operation has reached only some of the workers."""

        async def label() -> None:
            for _ in range(_UNEVEN_POLLS):
                if len(epochs_of(self._run.workers)) > 1:
                    fields = {"new_version": f"v{args['draw']}"}
                    self._call("label_meanwhile", coordinator, "/update_weight_version", fields)
                    return
                await asyncio.sleep(_UNEVEN_POLL_S)

        self._world.root.spawn(label())

    def _reset_cache(self, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        fields = {"reset_running_requests": args["draw"] < 0.5}
        self._call("reset_cache", coordinator, "/reset_prefix_cache", fields)

    def _load_adapter(self, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        fields = {
            "lora_name": args["adapter"],
            "lora_path": f"/adapters/{args['draw']}",
            "load_inplace": args["draw"] < 0.5,
        }
        self._change_adapter("load_adapter", coordinator, "/v1/load_lora_adapter", fields)

    def _unload_adapter(self, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        self._change_adapter("unload_adapter", coordinator, "/v1/unload_lora_adapter", {"lora_name": args["adapter"]})

    def _change_adapter(self, kind: str, coordinator: CoordinatorHost, path: str, fields: dict[str, Any]) -> None:
        ledger, node, name = self._run.witness.adapters, coordinator.node, fields["lora_name"]

        async def change() -> bool:
            was_loaded = node is not None and ledger.state(name, node)[1]
            number, begun, alone = ledger.begin(name), self._begun, self._under_way == 1
            confirmed = await self._operator.call(coordinator, path, fields)
            certain = alone and begun == self._begun and not any(each.lies for each in self._world.nodes)
            if confirmed and certain and node is not None:
                ledger.confirm(name, node, number, kind == "load_adapter")
                if was_loaded and fields.get("load_inplace") is False:
                    self._run.violate(f"adapter {name} was loaded again, though it was not to be replaced")
            return confirmed

        self._operate(kind, coordinator, change())

    # Aborts.

    def _abort(self, coordinator: CoordinatorHost, args: dict[str, Any]) -> None:
        open_clients = [each for each in self._run.clients if not each.ending]
        self.abort("abort", coordinator, open_clients[: 1 + int(args["draw"] * 5)])

    def abort(
        self,
        kind: str,
        coordinator: CoordinatorHost,
        aborted: list[SimulatedClient],
        on_confirmed: OnConfirmed = lambda: None,
    ) -> None:
        """Abort requests, and check that they end."""
        if aborted:
            self._operate(kind, coordinator, self._abort_requests(coordinator, aborted, on_confirmed))

    async def _abort_requests(
        self, coordinator: CoordinatorHost, aborted: list[SimulatedClient], on_confirmed: OnConfirmed
    ) -> bool:
        # Slow readers still get what was generated before, and those who wait for a whole reply get all of it.
        readers = [each for each in aborted if each.spec["stream"] and not each.spec["read_delay_s"]]
        reached: list[SimulatedClient] = []

        def on_served() -> None:
            reached.extend(each for each in readers if is_reached(each, coordinator, self._run.coordinators))

        fields = {"request_ids": [each.request_id for each in aborted]}
        self._aborted.update(fields["request_ids"])
        if not await self._operator.call(coordinator, ABORT_ROUTE, fields, on_served):
            return False
        # Others may have started since, and then hear of a later abort.
        engines = {client: engines_that_know(client, self._run.workers) for client in reached}
        begun = {client: len(self._runs(client, engines[client])) for client in reached}
        on_confirmed()
        await asyncio.sleep(_ABORT_S)
        before = {client: client.tokens for client in reached if not client.ending}
        generated = {client: sum(self._runs(client, engines[client])) for client in reached}
        await asyncio.sleep(_ABORT_S)
        for client in () if self._run.upgrades.revives_aborted else reached:
            if client.server_node is coordinator.node and client.tokens > before.get(client, client.tokens):
                self._run.violate(f"{client.name} got tokens after its abort")
            runs = () if self._delays_commands else self._runs(client, engines[client])
            if sum(runs) > generated[client]:
                self._run.violate(f"{client.name} goes on after its abort")
            if len(runs) > begun[client]:
                self._run.violate(f"{client.name} begins again after its abort")
        return True

    def may_have_aborted(self, client: SimulatedClient) -> bool:
        """Return whether a client's request was aborted, by its id or with all."""
        late_s = math.inf if self._delays_commands else _ABORT_S
        with_all = (pause.over_at + late_s >= client.begun_at for pause in self._pauses_with_abort)
        return client.request_id in self._aborted or any(with_all)

    def _runs(self, client: SimulatedClient, engines: Collection[RecordedEngine]) -> list[int]:
        """Return the number of tokens of each run that some engines have begun to generate for a client."""
        placements = self._run.placements.get(client.request_id, ())
        return [len(each.generated) for each in placements if each.engine in engines and each.generated]

    @property
    def _delays_commands(self) -> bool:
        """Whether a command may be under way for long: one that resumes a request then seems younger than its abort."""
        return any(event.kind in _DELAYS for event in self._run.script.events)

    # The end of all faults.

    def begin_recovery(self) -> None:
        """Count the recovery as an operation."""
        self._begun += 1

    async def resume_fleet(self) -> bool:
        """Resume and wake all workers; return whether both was confirmed."""
        first = self._run.coordinators[0]
        if first.core is None or not first.is_running:
            first.start(self._run.settings)
            return False
        self._begun += 1
        # At the same time: neither may make the other fail.
        calls = [self._operator.node.spawn(self._operator.call(first, path, {})) for path in ("/resume", "/wake_up")]
        return all([await each for each in calls])
