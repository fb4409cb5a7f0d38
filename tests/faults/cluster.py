"""Workers and a coordinator as processes, for one fault."""

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.certificates import Authority, certify_peers, peer_options
from tests.faults.client import ClientRecord, read_stream
from tests.faults.clock import FakedClock
from tests.faults.proxy import Proxy
from tests.processes import Process

STEP_MS = 40


@dataclass(frozen=True, slots=True)
class Layout:
    """The parts of a cluster."""

    workers: int = 3
    worker_options: tuple[str, ...] = ()
    first_worker_options: tuple[str, ...] = ()
    rollout: bool = False
    """The second half of the workers has other weights. With `listed`."""
    proxied: bool = False
    """A proxy stands before each worker."""
    listed: bool = False
    """The coordinator finds the workers in a file."""
    secured: bool = False
    """Coordinator and workers show each other certificates."""
    faked_clock: bool = False
    """The processes' time of day can be set."""
    commands: bool = False
    """The coordinator has admin routes, and a key that signs operations."""


class FaultyCluster:
    """Some identical workers, and a coordinator in front of them."""

    def __init__(
        self,
        folder: Path,
        layout: Layout,
        body: Callable[[int], dict[str, Any]],
        proxies: Sequence[Proxy] = (),
    ) -> None:
        """`body` returns the request of the stream with a number."""
        self.folder = folder
        self.body = body
        self.joined: list[ClientRecord] = []
        """Streams that a fault has sent, which count like the others."""
        self.proxies = proxies
        self.workers: dict[int, Process] = {}
        self.url = ""
        self.clock = FakedClock(folder / "clock") if layout.faked_clock else None
        self._layout = layout
        self._starts = 0
        self._coordinators: list[Process] = []

    @property
    def coordinator(self) -> Process:
        """The coordinator started last."""
        return self._coordinators[-1]

    def address(self, number: int) -> str:
        """Return a worker's address."""
        return f"unix:{self.folder}/{number}.sock"

    def revisions(self) -> list[list[int]]:
        """Return the workers of each revision."""
        numbers = list(self.workers)
        half = len(numbers) // 2
        return [numbers[:half], numbers[half:]] if self._layout.rollout else [numbers]

    async def show_only(self, numbers: Sequence[int]) -> None:
        """List these workers alone, and wait until the coordinator has no others."""
        self.announce(numbers)
        gone = [self.address(number) for number in self.workers if number not in numbers]
        for address in gone:
            await asyncio.to_thread(self.coordinator.wait_for, f"worker {address} removed", 60)

    def start_worker(self, number: int, *options: str) -> None:
        """Start a worker without waiting for it."""
        self._starts += 1
        weights = ["--sim-seed", "1"] if self._layout.rollout and 2 * number >= self._layout.workers else []
        options = (*options, *weights)
        simulation = ["--sim-step-ms", str(STEP_MS), "--sim-max-num-seqs", "400", *self._layout.worker_options]
        arguments = ["worker", "--engine", "sim", "--listen", self.address(number), *simulation, *options]
        log = self.folder / f"worker-{number}-{self._starts}.log"
        self.workers[number] = Process([*arguments, *self._peer_options("worker")], log, self._environment())

    async def wait_worker(self, number: int) -> None:
        """Wait until a worker accepts requests."""
        await asyncio.to_thread(self.workers[number].wait_for, "ready: ", 60)

    def kill(self, number: int, how: int = signal.SIGKILL) -> None:
        """Send a worker a signal."""
        self.workers[number].signal(how)

    async def start_coordinator(self) -> None:
        """Start a coordinator and wait until it serves."""
        proxies = [proxy.address for proxy in self.proxies]
        workers = [f"file:{self._list}"] if self._layout.listed else proxies or map(self.address, self.workers)
        named = [argument for address in workers for argument in ("--worker", address)]
        log = self.folder / f"coordinator-{len(self._coordinators)}.log"
        arguments = ["coordinator", "--port", "0", "--cache-dir", str(self.folder / "cache"), *named]
        arguments += self._command_options()
        self._coordinators.append(Process([*arguments, *self._peer_options("coordinator")], log, self._environment()))
        found = await asyncio.to_thread(self.coordinator.wait_for, r"listening on (http://\S+:\d+)", 60)
        self.url = found[1]
        async with httpx.AsyncClient() as client, asyncio.timeout(60):
            while (await client.get(f"{self.url}/health")).status_code != 200:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    def begin(self, streams: Sequence[ClientRecord]) -> list[asyncio.Task[ClientRecord]]:
        """Start reading streams."""
        return [asyncio.create_task(read_stream(self.url, stream)) for stream in streams]

    def begin_more(self, requests: int) -> list[asyncio.Task[ClientRecord]]:
        """Start more requests that count like the streams, from when they are sent on."""
        records = [ClientRecord(self.body(number)) for number in range(requests)]
        for record in records:
            record.arrivals.append(time.monotonic())
        self.joined += records
        return self.begin(records)

    async def begin_streams(self, requests: int) -> list[asyncio.Task[ClientRecord]]:
        """Start more streams, and wait for their first tokens, from which on they count."""
        records = [ClientRecord(self.body(number)) for number in range(requests)]
        self.joined += records
        tasks = self.begin(records)
        await asyncio.gather(*(record.began.wait() for record in records))
        return tasks

    def announce(self, present: Iterable[int], others: Sequence[str] = ()) -> None:
        """Write the list of workers that the coordinator reads: own ones, and addresses of others."""
        written = self.folder / "workers.new"
        written.write_text("".join(f"{address}\n" for address in [*map(self.address, present), *others]))
        written.replace(self._list)

    def certify(self) -> None:
        """Give coordinator and workers certificates of a new authority."""
        certify_peers(self.folder, Authority())

    @property
    def _list(self) -> Path:
        return self.folder / "workers"

    def _peer_options(self, end: str) -> list[str]:
        return peer_options(self.folder, end) if self._layout.secured else []

    def _command_options(self) -> list[str]:
        if not self._layout.commands:
            return []
        options = ["--enable-rl"]
        for name in ("admin-key", "operations-key"):
            (self.folder / name).write_text(f"the {name} of all of the coordinators")
            options.append(f"--{name}-file={self.folder / name}")
        return options

    def _environment(self) -> dict[str, str]:
        return self.clock.environment if self.clock else {}

    def stop(self) -> None:
        """Stop every process."""
        for process in [*self._coordinators, *self.workers.values()]:
            with contextlib.suppress(ProcessLookupError):
                process.signal(signal.SIGCONT)
            if process.popen.poll() is None:
                process.popen.kill()
            process.popen.wait()


@asynccontextmanager
async def running_cluster(
    folder: Path, layout: Layout, body: Callable[[int], dict[str, Any]]
) -> AsyncIterator[FaultyCluster]:
    """Run workers and a coordinator."""
    async with contextlib.AsyncExitStack() as stack:
        numbers = range(layout.workers)
        sockets = [f"unix:{folder}/{number}.sock" for number in numbers if layout.proxied]
        proxies = [await stack.enter_async_context(Proxy(address)) for address in sockets]
        cluster = FaultyCluster(folder, layout, body, proxies)
        stack.callback(cluster.stop)
        if layout.secured:
            cluster.certify()
        cluster.announce(numbers)
        for number in numbers:
            cluster.start_worker(number, *(layout.first_worker_options if number == 0 else ()))
        for number in numbers:
            await cluster.wait_worker(number)
        await cluster.start_coordinator()
        yield cluster
