"""Rolling restarts under another minor version of the protocol, and what must hold while nothing else happens."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tests.simulation.processes import CoordinatorHost, WorkerHost
from tests.simulation.script import STORE_EVENTS, UPGRADES, ScriptedEvent
from tests.simulation.skew import NEWEST, OLDEST
from tokenwire.protocol.version import MINOR

if TYPE_CHECKING:
    from tests.simulation.run import SimulationRun

_MINORS = (MINOR - 1, MINOR - 1, NEWEST, NEWEST, MINOR, *range(OLDEST, MINOR - 1))
"""What a process is restarted under: mostly what a rollout of one version meets."""
_LONGEST_S = 2.0
_DRAINED_WITHIN_S = 15.0
_POLL_S = 0.1
_HARMLESS = {"request", *UPGRADES, *STORE_EVENTS}
_LOST = "The worker that generated this reply was lost"
_DIFFERS = "a second run of the request differs"
_HAS_CAPABILITIES = 4
"""The minor version with which workers say which requests can be generated again."""
_HOLDS_ABORTS = 5
"""The minor version with which a worker learns that a request may have been aborted elsewhere."""
_ANNOUNCES_WEIGHTS = 6
"""The minor version with which workers say which weights they started with."""
_HAS_RECORDS = 6
"""The minor version with which operations have records."""


class Upgrades:
    """Restarts processes one after the other, as an operator or a Deployment does."""

    def __init__(self, run: "SimulationRun") -> None:
        self._run = run
        self._world = run.world
        self._over = False
        self.oldest = MINOR
        """The oldest minor version that a process may have had."""
        self.restarts: Counter[str] = Counter()
        """How many processes were restarted as an older or newer one, or the same."""

    def inject(self, event: ScriptedEvent) -> None:
        """Begin a rolling restart."""
        workers = event.kind == "roll_workers"
        hosts = self._run.workers if workers else self._run.coordinators
        self._world.root.spawn(self._roll(list(hosts), event.args))

    def stop(self) -> None:
        """Restart nothing more."""
        self._over = True

    @property
    def revives_aborted(self) -> bool:
        """Whether an aborted request may go on elsewhere: no process knows of an abort at another worker."""
        return self.oldest < _HOLDS_ABORTS

    @property
    def hides_seeds(self) -> bool:
        """Whether workers may not say if seeds are safe: a request that can only be generated again gets none there."""
        return self.oldest < _HAS_CAPABILITIES

    def problems(self) -> list[str]:
        """Return the requests that a run lost which had nothing but rolling restarts."""
        kinds = {event.kind for event in self._run.script.events}
        if not kinds & set(UPGRADES) or not kinds <= _HARMLESS or self.oldest < _HAS_CAPABILITIES:
            return []
        messages = ((client.name, client.error.get("message", "")) for client in self._run.clients)
        # Engines that are not alike may generate another reply than the one before.
        return [
            f"{name} was lost in a rolling restart: {message}"
            for name, message in messages
            if _LOST in message and _DIFFERS not in message
        ]

    async def _roll(self, hosts: Sequence[WorkerHost | CoordinatorHost], args: dict[str, Any]) -> None:
        # A key is given to coordinators once all processes have records, as the guide says.
        signed = self._run.script.config["signed"]
        minors = [minor for minor in _MINORS if minor >= _HAS_RECORDS or not signed]
        minor = minors[int(args["draw"] * 1000) % len(minors)]
        self.oldest = min(self.oldest, minor)
        self._run.witness.announces_weights = self.oldest >= _ANNOUNCES_WEIGHTS
        for host in hosts:
            host.minor = minor
            if isinstance(host, WorkerHost):
                host.terminate()
            else:
                host.terminate(drain_timeout_s=_LONGEST_S)
            waited_s = 0.0
            while host.is_running and not self._over and waited_s < _DRAINED_WITHIN_S:
                await asyncio.sleep(_POLL_S)
                waited_s += _POLL_S
            if self._over:
                return
            self._restart(host)
            await asyncio.sleep(min(args["length"], _LONGEST_S))

    def _restart(self, host: WorkerHost | CoordinatorHost) -> None:
        if host.is_running:
            return  # frozen, or its drain takes longer: it gets its new version with its next restart
        if isinstance(host, WorkerHost):
            host.start(self._run.engine_settings)
        else:
            host.start(self._run.settings)
        age = "older" if host.minor < MINOR else "newer" if host.minor > MINOR else "current"
        self.restarts[f"{host.name[0]} restarted under the {age} minor"] += 1
