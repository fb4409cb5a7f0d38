"""Hundreds of concurrent streams with clients of every kind: replies are complete, and nothing leaks."""

import asyncio
import random
import resource
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from tests.e2e.bare_streams import CHAT, MESSAGES, BareReply, BareStream, parse_stream, sent, streamed_body
from tests.processes import Service, simulated_service

pytestmark = [pytest.mark.ci, pytest.mark.slow]

MOST_STREAMS = 1000
TINY_BUFFER = 4096
# It is in every chunk, so that few tokens fill the kernel's buffers of a connection that nobody reads.
BULKY_ID = "x" * 512
NO_GROWTH = 15 * 1024 * 1024

Client = Callable[["Round"], Coroutine[Any, Any, None]]


@pytest.fixture
def many_files() -> Iterator[None]:
    """Allow a few thousand open files, here and in child processes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * MOST_STREAMS
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"needs {wanted} open files, at most {hard} are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Pulse:
    """Wakes slow readers whenever a fast one has read; once the fast ones are done, slow readers read on."""

    def __init__(self) -> None:
        self._next = asyncio.Event()
        self.over = False
        """Whether nobody quick is left."""

    def beat(self) -> None:
        """Wake all waiting readers."""
        self._next.set()
        if not self.over:
            self._next = asyncio.Event()

    def end(self) -> None:
        """Stop waiting for beats."""
        self.over = True
        self._next.set()

    async def wait(self) -> None:
        """Wait for the next beat."""
        await self._next.wait()


class Round:
    """One round of clients against a service, seeded for reproduction."""

    def __init__(self, service: Service, seed: int) -> None:
        parts = urlsplit(service.url)
        assert parts.hostname is not None
        assert parts.port is not None
        self.address = (parts.hostname, parts.port)
        self.dice = random.Random(seed)
        self.pulse = Pulse()
        self.cut = asyncio.Event()
        """Set when the workers have nothing to do any more, so that clients that read nothing have been cut off."""
        self.service = service
        self.full = 0
        """Replies that were read to their end and were right."""
        self.stopped = 0
        """Choices among them that a stop string ended."""

    def maybe_reset(self, stream: BareStream) -> None:
        """Let every other client disconnect with a reset."""
        if self.dice.random() < 0.5:
            stream.reset_on_close()

    async def run(self, streams: int) -> None:
        """Run clients concurrently, hundreds with the same shares of every kind."""
        quick = [read_full] * 46 + [stop_early] * 12 + [two_choices] * 6 + [leave_midway] * 13
        quick += [leave_at_once] * 10 + [hang_up_unstreamed] * 7
        slow: list[Client] = [read_slowly] * 4
        idle: list[Client] = [never_read] * 2
        for kind in (quick, slow, idle):
            kind *= streams // 100
        self.dice.shuffle(quick)
        assert len(quick) + len(slow) + len(idle) == streams
        async with asyncio.TaskGroup() as idlers:
            for client in idle:
                idlers.create_task(client(self))
            async with asyncio.TaskGroup() as readers:
                for client in slow:
                    readers.create_task(client(self))
                async with asyncio.TaskGroup() as group:
                    for client in quick:
                        group.create_task(client(self))
                self.pulse.end()
            await asyncio.to_thread(_wait_idle, self.service)
            self.cut.set()


# The clients.


async def read_full(soak: Round) -> None:
    """Read a reply to its end: one character per token."""
    tokens = soak.dice.randint(1, 300)
    reply = await _read_quickly(soak, streamed_body(tokens))

    assert [len(text) for text in reply.texts] == [tokens]
    assert reply.finish_reasons == ["length"]
    assert reply.completion_tokens == tokens


async def stop_early(soak: Round) -> None:
    """Use common characters as stop strings: the token of the match counts, its text does not."""
    stops = soak.dice.sample("abcdefghijklmnop", soak.dice.randint(1, 4))
    reply = await _read_quickly(soak, streamed_body(300, stop=stops, seed=soak.dice.getrandbits(31)))

    text, stopped = reply.texts[0], reply.finish_reasons == ["stop"]
    assert not set(stops) & set(text)
    assert reply.completion_tokens == len(text) + stopped
    assert stopped or len(text) == 300
    soak.stopped += stopped


async def two_choices(soak: Round) -> None:
    """Request two choices, each of which may stop."""
    reply = await _read_quickly(soak, streamed_body(200, n=2, stop=["q"], seed=soak.dice.getrandbits(31)), choices=2)

    stopped = reply.finish_reasons.count("stop")
    assert reply.completion_tokens == sum(map(len, reply.texts)) + stopped
    assert all(
        reason == "stop" or len(text) == 200 for text, reason in zip(reply.texts, reply.finish_reasons, strict=True)
    )
    soak.stopped += stopped


async def _read_quickly(soak: Round, body: dict[str, Any], choices: int = 1) -> BareReply:
    async with sent(soak.address, body) as stream:
        while not stream.complete:
            assert await stream.read(), stream.data[-500:]
            soak.pulse.beat()
    soak.full += 1
    return parse_stream(stream.data, choices)


async def leave_at_once(soak: Round) -> None:
    """Disconnect before the first token."""
    async with sent(soak.address, streamed_body(20_000)) as stream:
        soak.maybe_reset(stream)


async def leave_midway(soak: Round) -> None:
    """Disconnect within the reply."""
    enough = soak.dice.randint(1, 20_000)
    async with sent(soak.address, streamed_body(20_000, n=soak.dice.randint(1, 2))) as stream:
        while len(stream.data) < enough:
            assert await stream.read(4096), stream.data[-500:]
        soak.maybe_reset(stream)


async def hang_up_unstreamed(soak: Round) -> None:
    """Disconnect from a non-streamed reply, at once or after others have read."""
    async with sent(soak.address, {"max_tokens": 20_000, "n": soak.dice.randint(1, 2)}) as stream:
        for _ in range(soak.dice.randint(0, 5)):
            await soak.pulse.wait()
        soak.maybe_reset(stream)


async def read_slowly(soak: Round) -> None:
    """Read little at a time, with a tiny buffer, until all fast readers are done; then read the rest."""
    async with sent(soak.address, streamed_body(1000, request_id=BULKY_ID), TINY_BUFFER) as stream:
        while not stream.complete:
            assert await stream.read(soak.dice.randint(1000, 9000)), stream.data[-500:]
            await soak.pulse.wait()
            if soak.pulse.over:
                stream.widen()
    assert [len(text) for text in parse_stream(stream.data, 1).texts] == [1000]
    soak.full += 1


async def never_read(soak: Round) -> None:
    """Read nothing until the server disconnects: the rest is not a full reply."""
    async with sent(soak.address, streamed_body(30_000, request_id=BULKY_ID), TINY_BUFFER) as stream:
        await soak.cut.wait()
        while await stream.read():
            pass
    assert not stream.complete


# The test.


@pytest.mark.parametrize("streams", [300, pytest.param(MOST_STREAMS, marks=pytest.mark.long)])
async def test_hundreds_of_clients_of_every_kind_leak_nothing(folder: Path, many_files: None, streams: int) -> None:
    """Other clients get full replies, all slots are freed, and memory does not grow."""
    with simulated_service(
        folder,
        "--sim-step-ms",
        "5",
        "--sim-max-num-seqs",
        "600",
        workers=2,
        coordinator_options=["--client-stall-timeout", "5"],
    ) as service:
        coordinator = psutil.Process(service.coordinator.popen.pid)
        files = coordinator.num_fds()
        sizes = []
        for seed in range(2):
            soak = Round(service, seed)
            await soak.run(streams)
            assert soak.full == streams * 68 // 100
            assert soak.stopped > streams // 10
            _wait(lambda: coordinator.num_fds() <= files)
            sizes.append(coordinator.memory_info().rss)

        _wait(lambda: coordinator.memory_info().rss < sizes[0] + NO_GROWTH)
        _check_service(service)


def _wait_idle(service: Service) -> None:
    for number in range(len(service.workers)):
        service.wait_slots(0, worker=number, timeout_s=30)


def _wait(holds: Callable[[], bool], timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _check_service(service: Service) -> None:
    answer = httpx.post(service.url + CHAT, json={"messages": MESSAGES, "max_tokens": 5})
    assert answer.json()["usage"]["completion_tokens"] == 5
    for process in (service.coordinator, *service.workers):
        for sign in ("Traceback", " E ", "Exception"):
            assert sign not in process.log, process.log[-5000:]
