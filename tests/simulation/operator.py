"""An operator or trainer: calls the admin routes over HTTP with the keys that they need, as RL clients do."""

import json
import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tests.simulation.http import HttpExchange, HttpRequest
from tests.simulation.processes import CoordinatorHost
from tests.simulation.settings import ADMIN_KEY
from tests.simulation.tenants import ABORT_ROUTE, operator_headers

if TYPE_CHECKING:
    from tests.simulation.run import SimulationRun

_WRONG_KEY_SHARE = 0.1
"""Of calls that are first made with a wrong key."""


class Operator:
    """A process of its own: what becomes of coordinators, it finds out as any client does."""

    def __init__(self, run: "SimulationRun") -> None:
        self.node = run.world.node("operator")
        self._run = run
        self._random = random.Random(f"{run.world.seed} operator")

    async def call(
        self,
        coordinator: CoordinatorHost,
        path: str,
        fields: Mapping[str, Any],
        on_served: Callable[[], None] = lambda: None,
    ) -> bool:
        """Call a route; return whether it was confirmed. `on_served` is called when the coordinator gets the request.

        Not confirmed says little: a connection may be lost on the way back.
        """
        key = operator_headers(self._run.script.config["keys"]) if path == ABORT_ROUTE else _bearer(ADMIN_KEY)
        if path != ABORT_ROUTE and self._random.random() < _WRONG_KEY_SHARE:
            await self._call_with_wrong_key(coordinator, path, fields)
        status, message = await self._send(coordinator, path, fields, key, on_served)
        if status == 200:
            return True
        self._run.world.note("operation failed", path, status, message)
        self._run.seen[f"operation failed: {status or 'connection lost'}"] += 1
        if status in (401, 403, 500):
            self._run.violate(f"{path} {dict(fields)} is answered with {status}: {message}")
        return False

    async def _call_with_wrong_key(self, coordinator: CoordinatorHost, path: str, fields: Mapping[str, Any]) -> None:
        status, _ = await self._send(coordinator, path, fields, _bearer("guess"), lambda: None)
        self._run.seen["operation refused: wrong admin key"] += status == 401
        if status not in (None, 401):
            self._run.violate(f"{path} is answered with {status} to somebody without the admin key")

    async def _send(
        self,
        coordinator: CoordinatorHost,
        path: str,
        fields: Mapping[str, Any],
        headers: tuple[tuple[bytes, bytes], ...],
        on_served: Callable[[], None],
    ) -> tuple[int | None, str]:
        """Return the status and body of the response; None without a whole one."""
        http = coordinator.http
        if http is None or http.node.dead or not http.accepts:
            return None, "connection refused"
        request = HttpRequest(path, headers, json.dumps(dict(fields)).encode(), address="10.2.0.1")
        exchange = HttpExchange(self._run.network, self.node, http, request)
        exchange.on_served = on_served
        status, body = None, b""
        while (message := await exchange.read()) is not None:
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                body += message["body"]
        return (None, "connection lost") if exchange.lost else (status, body.decode()[:300])


def _bearer(key: str) -> tuple[tuple[bytes, bytes], ...]:
    return ((b"authorization", f"Bearer {key}".encode()),)
