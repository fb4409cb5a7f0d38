"""Measures attacks by a worker: what a real coordinator and the honest workers of the same model do meanwhile."""

import asyncio
import base64
import contextlib
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.processes import Measured, measured
from tests.adversary.cost_watch import CostWatch
from tests.adversary.hostile_worker import HostileWorker, running_hostile_worker, server_info, tokenizer_of
from tests.adversary.innocent_stream import InnocentStream
from tests.adversary.worker_attacks import (
    KEY,
    BlindWorker,
    CaptorWorker,
    Honest,
    LyingWorker,
    NamelessWorker,
    StarvingWorker,
    WorkerAttack,
)
from tests.adversary.worker_draws import DrawnWorker
from tests.coordinator.media.pictures import png
from tokenwire.v1 import inference_pb2 as pb

WITH_ADMIN_ROUTES = ("--enable-rl", "--admin-key-file={folder}/admin")
WITH_KEY = (*WITH_ADMIN_ROUTES, "--operations-key-file={folder}/key")
"""Options of a coordinator."""
_ADMIN_KEY = "sesame"
_BODY = {"model": "simulated", "prompt": "Hi", "max_tokens": 4}
_STREAM = {**_BODY, "prompt": "Once", "max_tokens": 1_500, "ignore_eos": True, "seed": 7, "stream": True}
"""The innocent stream: of about three seconds, in which the hostile worker comes, is used and goes."""
_REQUEST_TIMEOUT = {"X-Request-Timeout": "1"}
"""Of requests that a hostile worker may get, and never answer."""
_AT_A_TIME = 4
_SETTLE_S = 1.5
"""After so long, a coordinator that believed a lie has told it to the others."""
_POLL_S = 0.05


class LyingFleet:
    """A coordinator and two honest workers, which a hostile one joins in each attack."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        coordinator: Measured,
        honest: Sequence[str],
        folder: Path,
        serves_admin: bool,
    ) -> None:
        self._client = client
        self._coordinator = coordinator
        self._honest = honest
        self._folder = folder
        self._serves_admin = serves_admin
        self._attacks = 0
        self._history: list[pb.ServingState] = []
        self._versions = 0
        self._pictures = 0

    async def start(self) -> None:
        """Carry out some operations, so that there are records to lie about."""
        for _ in range(2):
            if self._serves_admin:
                await self._label()
            self._history.append(await _state_of(self._honest[0]))

    async def attack(self, attack: WorkerAttack) -> list[str]:
        """Let a hostile worker come and go; return what it did to others."""
        before = [await _state_of(address) for address in self._honest]
        worker = LyingWorker(await server_info(self._honest[0]), await tokenizer_of(self._honest[0]))
        worker.lie = attack.lie(Honest(before[0], tuple(self._history)))
        async with self._joined_by(worker) as address:
            await asyncio.sleep(_SETTLE_S)
            after = [await _state_of(honest) for honest in self._honest]
            problems = [f"{after} instead of {before}"] if after != before else []
            reason = (await self._workers())[address]["reason"] or ""
            if self._serves_admin and attack.reason not in reason:
                problems.append(f"the reason is {reason!r}")
            problems += await self._use(reason) if reason else []  # without one it gets requests, and answers none
        return problems

    async def starve(self) -> list[str]:
        """Let a worker starve every second request that it gets; return what is not as it should be.

        Requests are sent until it is found, and all of them are answered, without a timeout of theirs.
        """
        worker = StarvingWorker(await server_info(self._honest[0]), await tokenizer_of(self._honest[0]))
        async with self._joined_by(worker) as address:
            reason, problems = "", []
            async with asyncio.timeout(60):
                while "got no token there" not in reason:
                    problems += await self._use("")
                    reason = (await self._workers())[address]["reason"] or ""
            problems += await self._use(reason)
        return problems

    async def hold(self) -> list[str]:
        """Let a worker take requests and pause by itself; return what is not as it should be: all are answered."""
        worker = CaptorWorker(await server_info(self._honest[0]), await tokenizer_of(self._honest[0]))
        async with self._joined_by(worker):
            problems = []
            async with asyncio.timeout(60):
                while not worker.submits:
                    problems += await self._use("")
        return problems

    async def hide(self) -> list[str]:
        """Let a worker join that leaves out what it is; return what is not as it should be: it gets nothing."""
        worker = NamelessWorker(await server_info(self._honest[0]), await tokenizer_of(self._honest[0]))
        async with self._joined_by(worker, session="connecting") as address:
            problems = await self._use("")
            async with asyncio.timeout(60):
                while "does not announce" not in ((await self._workers())[address]["reason"] or ""):
                    problems += await self._use("")
        return problems + ([f"it got {worker.submits} requests"] if worker.submits else [])

    async def blind(self) -> list[str]:
        """Let a worker never expand a prompt with a picture; return what is not as it should be.

        Requests with pictures are answered, and once it has been waited for, others are asked instead.
        """
        worker = BlindWorker(await server_info(self._honest[0]), await tokenizer_of(self._honest[0]))
        async with self._joined_by(worker):
            problems = []
            async with asyncio.timeout(60):
                while not worker.expansions:
                    problems += await self._look_at_pictures()
            asked = worker.expansions
            problems += await self._look_at_pictures()
            if worker.expansions > asked:
                problems.append(f"it was asked {worker.expansions - asked} times more")
        return problems

    async def _look_at_pictures(self) -> list[str]:
        """Send chats with new pictures; return what fails."""
        posts = (self._client.post("/v1/chat/completions", json=self._chat()) for _ in range(_AT_A_TIME))
        replies = await asyncio.gather(*posts)
        return [f"a request with a picture failed: {reply.text}" for reply in replies if reply.status_code != 200]

    def _chat(self) -> dict[str, Any]:
        """Return a request with a new picture."""
        self._pictures += 1
        url = "data:image/png;base64," + base64.b64encode(png() + b"%d" % self._pictures).decode()
        content = [{"type": "image_url", "image_url": {"url": url}}]
        return {"model": "simulated", "max_tokens": 1, "messages": [{"role": "user", "content": content}]}

    @asynccontextmanager
    async def _joined_by(self, worker: HostileWorker, session: str = "ready") -> AsyncIterator[str]:
        """Let a hostile worker come and go; yields its address once it is listed beside the honest ones."""
        self._attacks += 1
        address = f"unix:{self._folder}/hostile-{self._attacks}.sock"
        async with running_hostile_worker(worker, address):
            await self._list([*self._honest, address], {address: session})
            yield address
            await self._list(self._honest)

    async def endure(self, seed: int) -> tuple[str, list[str]]:
        """Let a drawn hostile worker come, get requests and go while a stream runs on an honest one.

        Returns what the worker does, and what it did to others.
        """
        expected = (await (await self._stream()).result()).text
        before = [await _state_of(address) for address in self._honest]
        worker = DrawnWorker(await server_info(self._honest[0]), await tokenizer_of(self._honest[0]), seed)
        self._attacks += 1
        address = f"unix:{self._folder}/hostile-{self._attacks}.sock"
        innocents = [await self._stream() for _ in self._honest]  # one at each: they have as much to do
        async with running_hostile_worker(worker, address), CostWatch(self._coordinator) as cost:
            (self._folder / "workers").write_text("\n".join([*self._honest, address]))
            await worker.connected.wait()
            while not all(each.has_ended for each in innocents):
                # Pictures first: a worker that keeps requests is asked last about them.
                await asyncio.gather(*(self._picture() for _ in range(_AT_A_TIME)))
                await asyncio.gather(*(self._request() for _ in range(_AT_A_TIME)))
            problems = await self._look()
        await self._list(self._honest)  # only now: while it is connected, it need not end any request
        streams = [await each.result() for each in innocents]
        for each in streams:
            if each.text != expected or not each.is_whole:
                problems.append(
                    f"the stream ended after {len(each.text)} of {len(expected)} characters, or was changed"
                )
        problems += cost.problems([each.arrivals for each in streams])
        after = [await _state_of(honest) for honest in self._honest]
        problems += [f"{after} instead of {before}"] if after != before else []
        return f"{worker.name} ({worker.submits} requests)", problems + await self._use("")

    async def _stream(self) -> InnocentStream:
        return await InnocentStream.begin(
            str(self._client.base_url.join("/v1/completions")), dict(self._client.headers), _STREAM
        )

    async def _request(self) -> None:
        """Send a request that any worker may get; any answer will do, in time."""
        with contextlib.suppress(httpx.NetworkError, httpx.RemoteProtocolError):
            await self._client.post("/v1/completions", json={**_BODY, "logprobs": 2}, headers=_REQUEST_TIMEOUT)

    async def _picture(self) -> None:
        """Send a request with a new picture, about which any worker may be asked; any answer will do, in time."""
        with contextlib.suppress(httpx.NetworkError, httpx.RemoteProtocolError):
            await self._client.post("/v1/chat/completions", json=self._chat(), headers=_REQUEST_TIMEOUT)

    async def _look(self) -> list[str]:
        """Return what is wrong with what operators see."""
        try:
            list(text_string_to_metric_families((await self._client.get("/metrics")).text))
            await self._workers()
        except ValueError as error:
            return [f"/metrics or /status.json: {error}"]
        return []

    async def _use(self, reason: str) -> list[str]:
        """Send requests, and an operation; return what fails."""
        replies = await asyncio.gather(*(self._client.post("/v1/completions", json=_BODY) for _ in range(8)))
        problems = [f"a request failed: {reply.text}" for reply in replies if reply.status_code != 200]
        if self._serves_admin:
            failed = await self._label()
            # One that is not set aside may refuse an operation: then that is reported, and of it alone.
            if set(failed) & set(self._honest) or (failed and "set aside" in reason):
                problems.append(f"an operation failed on {failed}")
        return problems

    async def _label(self) -> list[str]:
        """Carry out an operation; return the workers on which it failed."""
        self._versions += 1
        reply = await self._client.post("/update_weight_version", json={"new_version": f"v{self._versions}"})
        workers = reply.json().get("error", {}).get("workers", [])
        return [each["worker"] for each in workers if each["status"] != "ok"]

    async def _workers(self) -> dict[str, Any]:
        """Return what the coordinator says of its workers, by address."""
        (process,) = (await self._client.get("/status.json")).json()["processes"]
        return {each["worker"]: each for each in process["workers"]}

    async def _list(self, addresses: Sequence[str], states: dict[str, str] | None = None) -> None:
        """Let the coordinator find these workers; return once they are ready, or as stated, and it has no others."""
        (self._folder / "workers").write_text("\n".join(addresses))
        expected = dict.fromkeys(addresses, "ready") | (states or {})
        async with asyncio.timeout(30):
            while True:
                if {name: each["session"] for name, each in (await self._workers()).items()} == expected:
                    return
                await asyncio.sleep(_POLL_S)


async def _state_of(address: str) -> pb.ServingState:
    return (await server_info(address)).welcome.serving


@asynccontextmanager
async def lying_fleet(*options: str) -> AsyncIterator[LyingFleet]:
    """Start a coordinator with options, and two honest workers."""
    async with AsyncExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="adversary-")))
        (folder / "key").write_text(KEY)
        (folder / "admin").write_text(_ADMIN_KEY)
        addresses = [f"unix:{folder}/{name}.sock" for name in ("a", "b")]
        (folder / "workers").write_text("\n".join(addresses))
        worker = ["worker", "--engine", "sim", "--sim-step-ms", "2", "--sim-image-tokens", "4"]
        workers = [running.enter_context(measured([*worker, "--listen", each])) for each in addresses]
        given = ["--worker", f"file:{folder}/workers", *(option.format(folder=folder) for option in options)]
        coordinator = running.enter_context(measured(["coordinator", "--port", "0", *given]))
        for each in workers:
            await asyncio.to_thread(each.wait_for, "ready: ")
        url = (await asyncio.to_thread(coordinator.wait_for, r"is ready: (http://\S+)"))[1]
        headers = {"Authorization": f"Bearer {_ADMIN_KEY}"}
        client = await running.enter_async_context(httpx.AsyncClient(base_url=url, headers=headers, timeout=60))
        fleet = LyingFleet(client, coordinator, addresses, folder, "--enable-rl" in options)
        await fleet.start()
        yield fleet
