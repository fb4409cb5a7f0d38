"""The processes under attack: a coordinator, workers of four models, and a background client."""

import asyncio
import contextlib
import os
import re
import signal
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx

from benchmarks.processes import Measured, measured
from tests.adversary import plain_server
from tests.adversary.background_client import BackgroundClient
from tests.adversary.model import write_large_model

_EMBEDDER = "e"
_SAMPLE_S = 0.02
_STACKS_AFTER_S = 0.2
_STACKS_AFTER_MB = 100.0
_BETWEEN_STACKS_S = 0.1
_LIMIT_MB = 2_147.0
"""The chart's limit: a coordinator that takes more is killed, as there."""
_FRAME = re.compile(r'  File ".*?((?:coordinator|tokenwire)/[^"]*)", line (\d+) in (\w+)')


class AttackedFleet:
    """A running coordinator with what is seen of it from outside."""

    def __init__(self, coordinator: Measured, url: str, models: list[str], stacks: Path) -> None:
        self.url = url
        self.target, other = [name for name in models if name not in (_EMBEDDER, plain_server.MODEL)]
        self.embedder = _EMBEDDER
        """The model that pools."""
        self.background = BackgroundClient(url, other)
        self.samples: list[tuple[float, float]] = []
        """Times with the coordinator's seconds of CPU until then."""
        self.fresh_mb = 0.0
        self._coordinator = coordinator
        self._stacks = stacks
        self._base_mb = 0.0
        self._most_mb = 0.0
        self._watching = False

    @property
    def is_alive(self) -> bool:
        """Whether the coordinator runs."""
        return self._coordinator.is_running()

    def memory_mb(self) -> float:
        """Its resident memory now."""
        return self._coordinator.memory_mb() if self.is_alive else 0.0

    def peak_mb(self) -> float:
        """The most of it since `begin`."""
        with contextlib.suppress(OSError, ValueError):
            return self._coordinator.peak_memory_mb()
        return self._most_mb  # it has died

    def begin(self) -> float:
        """Begin to watch an attack; return the memory before it."""
        self._coordinator.reset_peak()
        self._stacks.write_text("")
        self._base_mb = self._most_mb = self.memory_mb()
        self._watching = True
        self.samples = self.samples[-1:]
        return self._base_mb

    def places(self) -> Counter[str]:
        """End watching; return where the coordinator's threads were while it was slow or large, in their own frames."""
        self._watching = False
        found: Counter[str] = Counter()
        for thread in re.split(r"\n(?=Thread |Current thread )", self._stacks.read_text()):
            frame = _FRAME.search(thread)
            if frame is not None and "server.py" not in frame[1] and "cli/" not in frame[1]:
                found[f"{frame[1]}:{frame[2]} {frame[3]}"] += 1
        return found

    async def settle(self, timeout_s: float = 60.0) -> None:
        """Wait until the coordinator has only its background client."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and self.is_alive:
            cpu, arrived = self._coordinator.cpu_seconds(), len(self.background.arrivals)
            await asyncio.sleep(0.25)
            streams = len(self.background.arrivals) > arrived
            if self.is_alive and streams and self._coordinator.cpu_seconds() - cpu < 0.1:
                return

    async def sample(self) -> None:
        """Note the coordinator's CPU time until cancelled, and have it write its stacks when it is slow or large."""
        asked = 0.0
        while self.is_alive:
            now = time.monotonic()
            self.samples.append((now, self._coordinator.cpu_seconds()))
            last = self.background.arrivals[-1] if self.background.arrivals else now
            memory = self.memory_mb()
            self._most_mb = max(self._most_mb, memory)
            slow = now - last > _STACKS_AFTER_S or memory - self._base_mb > _STACKS_AFTER_MB
            if memory > _LIMIT_MB:
                self._coordinator.kill()
            if self._watching and slow and now - asked > _BETWEEN_STACKS_S:
                asked = now
                os.kill(self._coordinator.pid, signal.SIGUSR2)
            await asyncio.sleep(_SAMPLE_S)


@asynccontextmanager
async def attacked_fleet(*options: str) -> AsyncIterator[AttackedFleet]:
    """Start the processes, the coordinator with these options, and the background client."""
    async with AsyncExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="adversary-")))
        model = write_large_model(folder)
        addresses = [f"unix:{folder}/{name}.sock" for name in ("a", "b", _EMBEDDER)]
        worker = ["worker", str(model), "--engine", "sim", "--sim-step-ms", "5"]
        sees, pools = ["--sim-image-tokens", "64", "--sim-image-embeds"], ["--sim-embedding-width", "1024"]
        workers = [
            running.enter_context(measured([*worker, *own, "--served-model-name", address[-6], "--listen", address]))
            for address, own in zip(addresses, (sees, sees, pools), strict=True)
        ]
        plain = running.enter_context(measured([], plain_server.__name__))
        addresses.append((await asyncio.to_thread(plain.wait_for, r"ready: (\S+)"))[1])
        stacks = folder / "stacks.txt"
        named = [part for address in addresses for part in ("--worker", address)]
        arguments = [str(stacks), "coordinator", "--port", "0", "--tokenizer", str(model), *options, *named]
        coordinator = running.enter_context(measured(arguments, "tests.adversary.watched"))
        running.callback(coordinator.kill)  # what it still works on need not end
        for each in workers:
            await asyncio.to_thread(each.wait_for, "ready: ")
        url = (await asyncio.to_thread(coordinator.wait_for, r"is ready: (http://\S+)"))[1]
        fleet = AttackedFleet(coordinator, url, await _models(url), stacks)
        for task in (fleet.background.stream_forever(), fleet.sample()):
            running.push_async_callback(_cancel, asyncio.create_task(task))
        await fleet.settle()
        fleet.fresh_mb = fleet.memory_mb()
        yield fleet


async def _cancel(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait([task])


async def _models(url: str) -> list[str]:
    """Return the models once all are served: the first that generates is that of requests that name none."""
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        while True:
            names = [each["id"] for each in (await client.get("/v1/models")).json()["data"]]
            if len(names) == 4:
                return names
            await asyncio.sleep(0.05)
