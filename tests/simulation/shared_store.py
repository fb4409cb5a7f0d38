"""A history that coordinators share: its faults, how long it may delay them, and what is left of it in the end."""

import asyncio
import math
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tests.simulation.client import SimulatedClient
from tests.simulation.network import Network
from tests.simulation.script import ScriptedEvent
from tests.simulation.simulated_redis import NAME, SimulatedRedis
from tests.simulation.streams import open_stream
from tests.simulation.world import NODE
from tokenwire.coordinator.app import Core
from tokenwire.coordinator.history.open_store import SharedStore
from tokenwire.coordinator.history.redis_store import RedisStore
from tokenwire.coordinator.history.settings import HistorySettings
from tokenwire.coordinator.history.turns import Turn

if TYPE_CHECKING:
    from tests.simulation.run import SimulationRun

Violate = Callable[[str], None]

ANSWER_S = 0.5
"""A store in which a lookup takes longer is treated as empty ..."""
SKIPPED_S = 2.0
"""... for so long, as the documentation of `--history-store` says."""
LATE_S = 0.15
"""How late timers and callbacks may be."""
_PROBE_S = 2.5
"""After so long, what one coordinator has stored is there for the others."""


class TimedStore:
    """A shared store whose answers are timed: it delays no request by more than is documented, and raises nothing."""

    def __init__(self, store: RedisStore, redis: SimulatedRedis, network: Network, violate: Violate) -> None:
        self.store = store
        self._redis = redis
        self._network = network
        self._violate = violate
        self.late_at = -math.inf
        """When a lookup last took too long, as one does that opens a connection to a store that is far away."""

    async def find(self, keys: Sequence[bytes], share: str = "") -> Sequence[Turn | None]:
        """Return the turn of each key."""
        loop, node = asyncio.get_running_loop(), NODE.get()
        began = loop.time()
        self._network.reached["store asked"] += 1
        self._network.reached["store asked, and skipped"] += self.store._health.is_paused
        try:
            return await self.store.find(keys)
        except Exception as error:
            self._violate(f"{node.name}: a lookup in the shared store raised {error!r}")
            raise
        finally:
            waited_s = loop.time() - max(began, node.thawed_at)
            if waited_s >= ANSWER_S:
                self.late_at = loop.time()
                self._network.reached["store asked, and too late"] += 1
            self._network.reached["store asked in vain"] += loop.time() > began and self.store._health.is_paused
            if waited_s > ANSWER_S + LATE_S:
                self._violate(f"{node.name} waited {waited_s:.3f} s for an answer of the shared store")

    def put(self, keys: Sequence[bytes], turn: Turn, share: str = "") -> None:
        """Store a turn under keys."""
        self.store.put(keys, turn)

    async def close(self) -> None:
        """Write what is queued, and disconnect."""
        await self.store.close()

    def leftovers(self) -> Iterator[str]:
        """Yield what is left though no request is."""
        if unwritten := self.store._queue.qsize():
            yield f"keeps {unwritten} unwritten turns"
        if in_use := len(self.store._redis.connection_pool._in_use_connections):
            yield f"keeps {in_use} connections to the shared store in use"


class SharedHistory:
    """The store of a fleet, the coordinators that share it, and its faults."""

    def __init__(self, run: "SimulationRun", config: dict[str, Any]) -> None:
        """`config`: the indices of the coordinators that share the store, and its latency."""
        self.sharers: list[int] = config["sharers"]
        self.redis = SimulatedRedis(run.world, run.network)
        self._run = run
        self._world = run.world
        self._network = run.network
        self._stores: dict[str, TimedStore] = {}
        """Of the processes that run, by their coordinators' names."""
        self._network.far[NAME] = config["latency_s"]
        self._world.dial = lambda factory, address: open_stream(self._network, factory, address)

    def settings(self, ttl_s: float) -> HistorySettings:
        """Return the settings of a coordinator that shares the store."""
        return HistorySettings(store_url=self.redis.url, ttl_s=ttl_s)

    def watch(self, name: str, core: Core) -> None:
        """Time the lookups of a coordinator that has just been built, if it shares the store."""
        shared = core.history._store
        if isinstance(shared, SharedStore):
            assert isinstance(shared._shared, RedisStore)
            store = TimedStore(shared._shared, self.redis, self._network, self._run.violate)
            shared._shared = self._stores[name] = store

    def late_at(self, name: str) -> float:
        """Return when a lookup of a coordinator's process last took too long."""
        return self._stores[name].late_at

    # Its faults.

    def inject(self, event: ScriptedEvent) -> None:
        """Let an event happen, and end after its length."""
        getattr(self, f"_{event.kind}")(event.args)

    def _store_dies(self, args: dict[str, Any]) -> None:
        if self.redis.is_running:
            self._happens("store_dies")
            self.redis.kill()
            self._fault(args["length"], self.redis.start)

    def _store_fails(self, args: dict[str, Any]) -> None:
        self._happens("store_fails")
        self.redis.fail()
        self._fault(args["length"], self.redis.succeed)

    def _store_stalls(self, args: dict[str, Any]) -> None:
        """Let it answer nobody, or not one of the coordinators."""
        node, sharer = self.redis.node, f"c{args['coordinator']}"
        if args["draw"] < 0.5:
            self._happens("store_stalls")
            self._network.block(sharer, NAME)
            self._fault(args["length"], self._network.unblock, sharer, NAME)
        elif not node.frozen and not node.dead:
            self._happens("store_stalls")
            node.freeze()
            self._fault(args["length"], node.thaw)

    def _store_evicts(self, args: dict[str, Any]) -> None:
        evicted = self.redis.evict(args["draw"])
        self._network.reached["entry of the store evicted"] += evicted
        self._run.seen["event store_evicts"] += evicted > 0

    def _store_cut(self, args: dict[str, Any]) -> None:
        for connection in self._network.between(f"c{args['coordinator']}", NAME):
            self._happens("store_cut")
            connection.cut()
        self._fault(0.0, lambda: None)

    def _happens(self, kind: str) -> None:
        self._run.seen[f"event {kind}"] += 1

    def _fault(self, length: float, end: Callable[..., None], *args: str) -> None:
        self.redis.failing += 1
        self._world.call_later(length, self._end_fault, end, *args)

    def _end_fault(self, end: Callable[..., None], *args: str) -> None:
        self.redis.failing -= 1
        self.redis.failed_at = self._world.time()
        end(*args)

    def _turn_elsewhere(self, args: dict[str, Any]) -> None:
        """Send the next turn of a conversation to another coordinator than the one before."""
        open_ended = [each for each in self._run.clients if each.is_chat and each.may_be_continued]
        if open_ended:
            self._happens("turn_elsewhere")
            self._continue(open_ended[int(args["draw"] * 1000) % len(open_ended)], args["coordinator"])

    def _continue(self, earlier: SimulatedClient, index: int) -> None:
        others = [each for each in self.sharers if f"c{each}" != earlier.coordinator]
        number = sum(1 for each in self._run.clients if each.spec["follows"])
        self._run.send(
            dict(earlier.spec)
            | {
                "id": f"{earlier.name}+{number}",
                "follows": earlier.name,
                "prompt": f"TURN {number}",
                "coordinator": others[index % len(others)],
                "leave_s": None,
            }
        )

    # The end.

    def recover(self) -> None:
        """End all faults."""
        self.redis.succeed()
        self.redis.node.thaw()
        self.redis.start()

    async def probe(self) -> None:
        """Check that what one coordinator stores is found by the others, now that all is well."""
        turn = Turn(array("I", [1, 2, 3]))
        hosts = [self._run.coordinators[index] for index in self.sharers]
        (first, first_node), *others = [(self._stores[host.name], host.node) for host in hosts]
        assert first_node is not None
        first_node.call(first.put, [b"probe"], turn)
        await asyncio.sleep(_PROBE_S)
        for store, node in others:
            assert node is not None
            (found,) = await node.spawn(store.find([b"probe"]))
            if found is None:  # to open a connection may take longer than a lookup waits; then there is one
                await asyncio.sleep(_PROBE_S)
                (found,) = await node.spawn(store.find([b"probe"]))
            if found is None or found.all_ids() != turn.all_ids():
                self._run.violate(f"{node.name} does not find in the shared store what another coordinator stored")

    def leftovers(self) -> list[str]:
        """Return what is left though no request is."""
        return [f"{name} {problem}" for name, store in self._stores.items() for problem in store.leftovers()]
