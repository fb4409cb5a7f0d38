"""Which turns of conversations must continue from the exact ids of the turn before."""

from collections import Counter
from collections.abc import Callable

from tests.simulation.client import SimulatedClient
from tests.simulation.processes import CoordinatorHost
from tests.simulation.shared_store import ANSWER_S, LATE_S, SKIPPED_S, SharedHistory
from tests.simulation.world import World


class Conversations:
    """Where conversations are kept: in each coordinator's memory, and in the store that some of them share."""

    def __init__(self, world: World, ttl_s: float, shared: SharedHistory | None) -> None:
        self._world = world
        self._ttl_s = ttl_s
        self._shared = shared
        self._sharers = set() if shared is None else {f"c{index}" for index in shared.sharers}
        self.due: Counter[str] = Counter()
        """How many turns had to continue from exact ids."""

    def expectation(self, earlier: SimulatedClient | None, coordinator: CoordinatorHost) -> Callable[[], bool]:
        """Return what says, once a turn's prompt is known, whether it must have the ids of the turn before.

        To be called when the turn is sent. What a coordinator has served itself is in its own memory until it expires;
        what another one has served is there if the store holds it now, and neither fails nor evicts it until then, nor
        is the lookup late: it comes later than the turn, after a connection and other work.
        """
        node = coordinator.node
        if earlier is None or node is None:
            return lambda: False
        if earlier.server_node is node:
            expires = earlier.begun_at + self._ttl_s
            return lambda: self._is_due("by the same coordinator", self._world.time() < expires)
        shared = self._shared
        if shared is None or not {coordinator.name, earlier.coordinator} <= self._sharers:
            return lambda: False
        redis = shared.redis
        ids = [*earlier.prompt, *earlier.choices[0].token_ids]
        sent, stored_until = self._world.time(), redis.expiry(ids)
        since = sent - ANSWER_S - SKIPPED_S - 2 * LATE_S
        return lambda: self._is_due(
            "through the store",
            self._world.time() < stored_until
            and redis.worked_since(since)
            and not redis.evicted_since(sent, ids)
            and shared.late_at(coordinator.name) < since
            and node.thawed_at < since,
        )

    def _is_due(self, how: str, is_due: bool) -> bool:
        self.due[f"exact turn due {how}"] += is_due
        return is_due
