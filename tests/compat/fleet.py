"""Two minors of vLLM behind one name: their workers are replaced by each other's under load, there and back.

Greedy replies move at once. A seeded one is drawn otherwise by another minor, so it ends where it began: workers have
as long as that takes, by --drain-timeout.
"""

import asyncio
import itertools
import signal
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from gpu.kit import Kit
from gpu.servers import RunningServer
from tests.compat.environments import ROOT, MinorEnvironment
from tests.compat.minor import engine_of, provenance
from tests.faults.client import ClientRecord, read_stream
from tests.faults.long_replies import announce
from tests.processes import snapshot

STREAMS = 100
_TOKENS = 64
_PROMPTS = ("The sea was", "A train is", "Cooking rice", "The history of paper", "Once upon a time", "My garden")
_KINDS: tuple[dict[str, Any], ...] = ({"temperature": 0}, {"temperature": 0.8, "seed": 7})
_TIMEOUT_S = 300
_PATIENT = ("--drain-timeout", str(_TIMEOUT_S))

Output = tuple[str, list[int], str | None, dict[str, Any] | None]


def roll_minors(older: MinorEnvironment, newer: MinorEnvironment, streams: int = STREAMS) -> dict[str, Any]:
    """Keep this number of streams under way while both minors replace each other; return what became of them."""
    with tempfile.TemporaryDirectory(prefix="compat-fleet-") as folder, ExitStack() as stack:
        fleet = _RollingFleet(Kit.create("cpu", Path(folder)), stack, older, newer)
        expected = asyncio.run(fleet.undisturbed())
        read = asyncio.run(fleet.roll(streams))
    problems = [each.problem for each in read if each.problem]
    wrong = [each for each in read if not each.problem and each.output not in expected[_key(each.body)]]
    return {
        "minors": [older.vllm, newer.vllm],
        **provenance(),
        "at_a_time": streams,
        "streams": len(read),
        "engines": fleet.engines,
        "differ_between_minors": sum(one != other for one, other in expected.values()),
        "lost": len(problems),
        "corrupted": len(wrong),
        "problems": problems[:5] + [f"{each.output} is none of {expected[_key(each.body)]}" for each in wrong[:3]],
        "longest_gap_s": round(max(each.longest_gap_s for each in read), 2),
    }


class _RollingFleet:
    """A coordinator, and workers of two minors that come and go."""

    def __init__(self, kit: Kit, stack: ExitStack, older: MinorEnvironment, newer: MinorEnvironment) -> None:
        self._kit = kit
        self._stack = stack
        self._newer = newer
        self._older = older
        self._old = self._start(older, "older", 0)
        self._new = self._start(newer, "newer", 1)
        announce(kit.out, self._old.address)
        self.coordinator = stack.enter_context(kit.coordinator([f"file:{kit.out}/workers"]))
        self.engines: list[list[str]] = []
        """Those that take requests, after each change."""

    def _start(self, environment: MinorEnvironment, name: str, number: int) -> RunningServer:
        kit = replace(self._kit, engine_python=str(environment.python))
        imported = {"PYTHONPATH": str(ROOT)}
        worker = kit.tokenwire_worker(
            options=(*_PATIENT, *environment.worker_options),
            name=name,
            number=number,
            environment=imported,
            engine=engine_of(kit),
        )
        return self._stack.enter_context(worker)

    async def undisturbed(self) -> dict[Any, tuple[Output, Output]]:
        """Return what each request's stream is by itself, from either minor."""
        with_old = await self._read_all()
        await self._show(self._new)
        with_new = await self._read_all()
        await self._show(self._old)
        return {key: (with_old[key], with_new[key]) for key in with_old}

    async def _read_all(self) -> dict[Any, Output]:
        read = await asyncio.gather(*(read_stream(self.coordinator.address, ClientRecord(body)) for body in _bodies()))
        assert not any(each.problem for each in read), read[0].problem
        return {_key(each.body): each.output for each in read}

    async def roll(self, streams: int) -> list[ClientRecord]:
        """Replace the older worker by the newer one, and that by another older one; return all streams."""
        ended = asyncio.Event()
        waiting, read = itertools.cycle(_bodies()), list[ClientRecord]()
        clients = [asyncio.create_task(self._send(waiting, read, ended)) for _ in range(streams)]
        try:
            await self._begun(read, streams)
            await self._replace(self._old, self._new)
            again = await asyncio.to_thread(self._start, self._older, "older-again", 0)
            await self._replace(self._new, again)
            await self._begun(read, len(read) + streams)
        finally:
            ended.set()
        await asyncio.wait_for(asyncio.gather(*clients), _TIMEOUT_S)
        return read

    async def _send(
        self, waiting: "itertools.cycle[dict[str, Any]]", read: list[ClientRecord], ended: asyncio.Event
    ) -> None:
        while not ended.is_set():
            read.append(ClientRecord(next(waiting)))
            await read_stream(self.coordinator.address, read[-1])

    async def _begun(self, read: list[ClientRecord], count: int) -> None:
        """Wait until this many streams have data."""
        async with asyncio.timeout(_TIMEOUT_S):
            while sum(each.began.is_set() for each in read) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.1)

    async def _replace(self, old: RunningServer, new: RunningServer) -> None:
        """Let the new worker take requests beside the old one, and end the old one as a supervisor does."""
        await self._show(old, new)
        old.process.signal(signal.SIGTERM)
        await asyncio.to_thread(old.process.wait_exit, _TIMEOUT_S)
        await self._show(new)

    async def _show(self, *workers: RunningServer) -> None:
        """List these workers alone, and wait until they and no others take requests."""
        announce(self._kit.out, *(worker.address for worker in workers))
        addresses = {worker.address for worker in workers}
        async with asyncio.timeout(_TIMEOUT_S):
            seen = await self._routable()
            while seen.keys() != addresses:
                await asyncio.sleep(0.2)
                seen = await self._routable()
        self.engines.append(sorted(seen.values()))

    async def _routable(self) -> dict[str, str]:
        """Return the engines that take requests, by address; none if the coordinator is too busy to say."""
        try:
            workers = (await asyncio.to_thread(snapshot, self.coordinator.address))["workers"]
        except httpx.TimeoutException:
            return {}
        return {worker["worker"]: worker["engine"] for worker in workers if worker["routable"]}


def _bodies() -> list[dict[str, Any]]:
    shared = {"max_tokens": _TOKENS, "ignore_eos": True, "stream": True, "return_token_ids": True}
    usage = {"stream_options": {"include_usage": True}}
    return [{**shared, **usage, **kind, "prompt": prompt} for prompt in _PROMPTS for kind in _KINDS]


def _key(body: dict[str, Any]) -> tuple[Any, Any]:
    return body["prompt"], body.get("seed")
