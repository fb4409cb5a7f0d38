"""A Kubernetes API in the test's own process: EndpointSlices to list and to watch, and outages on command."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

PATH = "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"


def endpoint(ip: str, ready: bool = True, terminating: bool = False, pod: str | None = None) -> dict[str, Any]:
    """Return an endpoint, of the pod with this uid."""
    conditions = {"ready": ready, "serving": ready or terminating, "terminating": terminating}
    return {"addresses": [ip], "conditions": conditions, "targetRef": {"kind": "Pod", "uid": pod or f"uid-{ip}"}}


def endpoint_slice(name: str, *endpoints: dict[str, Any], port: int = 50051, family: str = "IPv4") -> dict[str, Any]:
    """Return a slice."""
    return {
        "metadata": {"name": name, "resourceVersion": ""},
        "addressType": family,
        "endpoints": list(endpoints) or None,
        "ports": [{"name": "metrics", "port": 9000}, {"name": "grpc", "port": port}],
    }


class FakeKubernetes:
    """Keeps slices by name, counts versions, and sends changes to all watches."""

    def __init__(self) -> None:
        self.url = ""
        self.slices: dict[str, dict[str, Any]] = {}
        self.requests: list[dict[str, str]] = []
        """Query, path and token of all requests."""
        self.failure: tuple[int, str] | None = None
        """Status and message of all answers, if they are to fail."""
        self.oldest = 0
        """The oldest version that a watch may go on from."""
        self._version = 100
        self._watches: list[asyncio.Queue[dict[str, Any] | None]] = []

    @property
    def watches(self) -> int:
        """How many watch now."""
        return len(self._watches)

    @property
    def lists(self) -> int:
        """How often the list was requested."""
        return sum("watch" not in request for request in self.requests)

    def put(self, changed: dict[str, Any]) -> None:
        """Add or change a slice."""
        kind = "MODIFIED" if changed["metadata"]["name"] in self.slices else "ADDED"
        self.slices[changed["metadata"]["name"]] = changed
        self.send(kind, changed)

    def delete(self, name: str) -> None:
        """Delete a slice."""
        self.send("DELETED", self.slices.pop(name))

    def send(self, kind: str, changed: dict[str, Any]) -> None:
        """Send an event, with the next version."""
        self._version += 1
        changed["metadata"] = {**changed.get("metadata", {}), "resourceVersion": str(self._version)}
        self._send({"type": kind, "object": changed})

    def bookmark(self) -> None:
        """Send the version of the moment."""
        self.send("BOOKMARK", {})

    def expire_history(self) -> None:
        """Answer those who watch, and those who want to go on from where they are, that it is too long ago."""
        self._version += 1
        self.oldest = self._version
        self._send({"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}})

    def hang_up(self) -> None:
        """End all watches."""
        for watch in self._watches:
            watch.put_nowait(None)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a list or a watch."""
        target = {"path": request.path, "authorization": request.headers.get("Authorization", "")}
        self.requests.append({**request.query, **target})
        if self.failure is not None:
            return web.json_response({"message": self.failure[1]}, status=self.failure[0])
        if request.query.get("watch") == "true":
            return await self._watch(request)
        metadata = {"resourceVersion": str(self._version)}
        return web.json_response({"metadata": metadata, "items": list(self.slices.values())})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        if int(request.query["resourceVersion"]) < self.oldest:
            return web.json_response({"message": "too old"}, status=410)
        response = web.StreamResponse()
        await response.prepare(request)
        events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._watches.append(events)
        try:
            while (event := await events.get()) is not None:
                line = json.dumps(event).encode() + b"\n"
                # In two pieces: an event may arrive in any number of them.
                await response.write(line[: len(line) // 2])
                await response.write(line[len(line) // 2 :])
        finally:
            self._watches.remove(events)
        return response

    def _send(self, event: dict[str, Any]) -> None:
        for watch in self._watches:
            watch.put_nowait(event)


@asynccontextmanager
async def fake_kubernetes() -> AsyncIterator[FakeKubernetes]:
    """Run the API on a port of its own."""
    fake = FakeKubernetes()
    app = web.Application()
    app.router.add_get(PATH, fake.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield fake
    finally:
        fake.hang_up()
        await runner.cleanup()
