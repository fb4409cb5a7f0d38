"""Workers and a coordinator as processes, for one fault."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from tests.faults.client import Stream, read_stream
from tests.faults.proxy import Proxy
from tests.processes import Process

STEP_MS = 40


class Cluster:
    """Some workers, all alike, and a coordinator in front of them."""

    def __init__(self, folder: Path, proxies: Sequence[Proxy], worker_options: Sequence[str]) -> None:
        self.folder = folder
        self.proxies = proxies
        self.workers: dict[int, Process] = {}
        self.url = ""
        self._options = worker_options
        self._starts = 0
        self._coordinators: list[Process] = []

    @property
    def coordinator(self) -> Process:
        """The coordinator that was started last."""
        return self._coordinators[-1]

    def address(self, number: int) -> str:
        """Return a worker's address."""
        return f"unix:{self.folder}/{number}.sock"

    def start_worker(self, number: int, *options: str) -> None:
        """Start a worker; does not wait for it."""
        self._starts += 1
        simulation = ["--sim-step-ms", str(STEP_MS), "--sim-max-num-seqs", "400", *self._options, *options]
        arguments = ["worker", "--engine", "sim", "--listen", self.address(number), *simulation]
        self.workers[number] = Process(arguments, self.folder / f"worker-{number}-{self._starts}.log")

    async def wait_worker(self, number: int) -> None:
        """Wait until a worker takes requests."""
        await asyncio.to_thread(self.workers[number].wait_for, "ready: ", 60)

    def kill(self, number: int, how: int = signal.SIGKILL) -> None:
        """Send a worker a signal."""
        self.workers[number].signal(how)

    async def start_coordinator(self, workers: Sequence[str], *options: str) -> None:
        """Start a coordinator and wait until it serves."""
        named = [argument for address in workers for argument in ("--worker", address)]
        log = self.folder / f"coordinator-{len(self._coordinators)}.log"
        cache = ["--cache-dir", str(self.folder / "cache")]
        self._coordinators.append(Process(["coordinator", "--port", "0", *cache, *named, *options], log))
        found = await asyncio.to_thread(self.coordinator.wait_for, r"listening on (http://\S+:\d+)", 60)
        self.url = found[1]
        async with httpx.AsyncClient() as client, asyncio.timeout(60):
            while (await client.get(f"{self.url}/health")).status_code != 200:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    def begin(self, streams: Sequence[Stream]) -> list[asyncio.Task[Stream]]:
        """Begin to read streams."""
        return [asyncio.create_task(read_stream(self.url, stream)) for stream in streams]

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
    folder: Path,
    workers: int,
    worker_options: Sequence[str] = (),
    first_worker_options: Sequence[str] = (),
    coordinator_options: Sequence[str] = (),
    proxied: bool = False,
    source: str | None = None,
) -> AsyncIterator[Cluster]:
    """Run so many workers and a coordinator; `source` takes the place of their addresses."""
    async with contextlib.AsyncExitStack() as stack:
        addresses = [f"unix:{folder}/{number}.sock" for number in range(workers)]
        proxies = [await stack.enter_async_context(Proxy(address)) for address in addresses if proxied]
        cluster = Cluster(folder, proxies, worker_options)
        stack.callback(cluster.stop)
        for number in range(workers):
            cluster.start_worker(number, *(first_worker_options if number == 0 else ()))
        for number in range(workers):
            await cluster.wait_worker(number)
        named = [source] if source else [proxy.address for proxy in proxies] or addresses
        await cluster.start_coordinator(named, *coordinator_options)
        yield cluster
