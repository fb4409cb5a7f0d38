"""Faults that somebody makes on purpose: workers that lie or fail for others, and clients that cost much."""

import asyncio
import itertools
import multiprocessing
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.adversary.client import send_attack
from tests.adversary.hostile_worker import (
    HANG_UP,
    HEARTBEAT_S,
    HostileWorker,
    SessionContext,
    running_hostile_worker,
    server_info,
    tokenizer_of,
)
from tests.adversary.rows import ROWS
from tests.adversary.worker_attacks import WORKER_ATTACKS, CaptorWorker, Honest, LyingWorker, NamelessWorker
from tests.adversary.worker_draws import METRICS
from tests.faults.cluster import FaultyCluster
from tokenwire.peer_auth.grpc_options import open_channel
from tokenwire.protocol.command_batch import commands_of
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.v1 import inference_pb2_grpc

_JOINING = 40
"""Requests that come while a hostile worker is there, or beside an expensive client."""
_FEW_JOINING = 8
"""In a quiet fleet: most of them get their tokens and leave those that a hostile worker has alone."""
_LIES = ("a newer pause without a record", "newer weights without a record", "the last epoch")
_EXPENSIVE = ("echo", "truncate", "unknown", "lists", "biases", "n")
_EXPENSIVE_S = 8.0
"""Less than a stream lasts."""
_BESIDE = 20
"""Streams that begin before each."""
_GREEDY_ADDRESS = "127.0.0.2"
_SCRAPES = 10
_BURST = 5
"""Steps that are sent at once."""
_BEATS = 45
"""Heartbeats between them: nine seconds."""
_STEP_BEATS = 5
"""From one step to the next: a second, a fifth of which is not slow yet."""
_BURSTS_S = 60.0
"""At that pace, streams take for many minutes."""


class ClosingWorker(HostileWorker):
    """Closes its session with each request."""

    def answer(self, submit: pb.Submit) -> Iterator[pb.SessionResponse]:
        """Return the end of the session."""
        yield HANG_UP


class AlwaysFailingWorker(HostileWorker):
    """Refuses each request, or ends it with an error, at once: so it always has the least to do."""

    def answer(self, submit: pb.Submit) -> Iterator[pb.SessionResponse]:
        """Return that the request is invalid, or that the engine failed."""
        if self.submits % 2:
            refusal = pb.Refusal(slots=submit.slots, code=pb.REFUSAL_CODE_INVALID, message="I will not")
            yield pb.SessionResponse(refusal=refusal)
        else:
            finishes = [pb.Finish(slot=slot, reason=pb.FINISH_REASON_ERROR) for slot in submit.slots]
            yield pb.SessionResponse(frame=pb.StepFrame(finishes=finishes))


class BurstingWorker(HostileWorker):
    """Hands on what the engine of another worker generates: a few steps at once, and then nothing for long."""

    behind = ""
    """The other worker's address."""

    async def Session(self, requests: AsyncIterator[pb.SessionRequest], context: SessionContext) -> None:
        """Relay a session."""
        frames: asyncio.Queue[pb.SessionResponse] = asyncio.Queue()
        async with open_channel(self.behind) as channel, asyncio.TaskGroup() as tasks:
            events = aiter(inference_pb2_grpc.InferenceStub(channel).Session(self._counted(requests)))
            await anext(events)
            await context.write(pb.SessionResponse(welcome=self.welcome()))
            self.connected.set()
            sending = tasks.create_task(self._send(frames, context))
            async for event in events:
                if event.HasField("frame"):
                    frames.put_nowait(event)
            sending.cancel()

    async def _counted(self, requests: AsyncIterator[pb.SessionRequest]) -> AsyncIterator[pb.SessionRequest]:
        async for request in requests:
            self.submits += sum(each.HasField("submit") for each in commands_of(request))
            yield request

    async def _send(self, frames: "asyncio.Queue[pb.SessionResponse]", context: SessionContext) -> None:
        """Send some frames, and heartbeats of an engine that makes steps."""
        for steps in itertools.count(1):
            if steps % _BEATS == 0:
                for _ in range(min(_BURST, frames.qsize())):
                    await context.write(frames.get_nowait())
            await context.write(pb.SessionResponse(heartbeat=pb.Heartbeat(steps=steps)))
            await asyncio.sleep(HEARTBEAT_S)


class PaddingWorker(BurstingWorker):
    """Hands on a step each second, and in between frames in which its sequences get no token."""

    async def _send(self, frames: "asyncio.Queue[pb.SessionResponse]", context: SessionContext) -> None:
        running: set[int] = set()
        for steps in itertools.count(1):
            if steps % _STEP_BEATS == 0 and not frames.empty():
                event = frames.get_nowait()
                running |= set(event.frame.slots)
                running -= {finish.slot for finish in event.frame.finishes}
                await context.write(event)
            elif running:
                await context.write(pb.SessionResponse(frame=pb.StepFrame(slots=running, counts=[0] * len(running))))
            await context.write(pb.SessionResponse(heartbeat=pb.Heartbeat(steps=steps)))
            await asyncio.sleep(HEARTBEAT_S)


class DrainingWorker(HostileWorker):
    """Gets no requests: it says from the start that it drains."""

    def welcome(self) -> pb.Welcome:
        """Return such a welcome."""
        welcome = super().welcome()
        welcome.draining = True
        return welcome


@asynccontextmanager
async def _joined_by(cluster: FaultyCluster, *kinds: type[HostileWorker]) -> AsyncIterator[list[HostileWorker]]:
    """Let hostile workers join, and be connected."""
    honest = cluster.address(0)
    workers = [kind(await server_info(honest), await tokenizer_of(honest)) for kind in kinds]
    addresses = [f"unix:{cluster.folder}/hostile-{number}.sock" for number in range(len(workers))]
    async with asyncio.TaskGroup() as serving:
        over = asyncio.Event()
        for worker, address in zip(workers, addresses, strict=True):
            serving.create_task(_serve(worker, address, over))
        try:
            cluster.announce(list(cluster.workers), addresses)
            for worker in workers:
                await worker.connected.wait()
            yield workers
            cluster.announce(list(cluster.workers))
            for address in addresses:
                await asyncio.to_thread(cluster.coordinator.wait_for, f"worker {address} removed", 60)
        finally:
            over.set()


async def _serve(worker: HostileWorker, address: str, over: asyncio.Event) -> None:
    async with running_hostile_worker(worker, address):
        await over.wait()


async def _join(cluster: FaultyCluster, requests: int = _JOINING) -> None:
    """Send more requests, and wait for their ends."""
    await asyncio.gather(*cluster.begin_more(requests))


async def only_heartbeats(cluster: FaultyCluster) -> None:
    """Let a worker join that takes requests, sends heartbeats, and never a token."""
    async with _joined_by(cluster, HostileWorker) as (worker,):
        await _join(cluster)
        _was_used([worker])


async def only_heartbeats_alone(cluster: FaultyCluster) -> None:
    """Let such a worker join a quiet fleet, so that soon nobody else generates."""
    async with _joined_by(cluster, HostileWorker) as (worker,):
        await _join(cluster, _FEW_JOINING)
        _was_used([worker])


async def hold(cluster: FaultyCluster) -> None:
    """Let a worker join that takes requests, then says that it is paused, and never sends a token."""
    async with _joined_by(cluster, CaptorWorker) as workers:
        await _join(cluster)
        _was_used(workers)


async def close_each(cluster: FaultyCluster) -> None:
    """Let two workers join that close their session with each request."""
    async with _joined_by(cluster, ClosingWorker, ClosingWorker) as workers:
        await _join(cluster)
        _was_used(workers)


async def fail_each(cluster: FaultyCluster) -> None:
    """Let two workers join that fail each request at once."""
    async with _joined_by(cluster, AlwaysFailingWorker, AlwaysFailingWorker) as workers:
        await _join(cluster)
        _was_used(workers)


async def send_bursts(cluster: FaultyCluster) -> None:
    """Let a worker join that sends a few quick tokens in nine seconds; requests there end long before they would."""
    await _relay_slowly(cluster, BurstingWorker)


async def pad(cluster: FaultyCluster) -> None:
    """Let a worker join that sends a token a second, and frames without any in between."""
    await _relay_slowly(cluster, PaddingWorker)


async def _relay_slowly(cluster: FaultyCluster, slow: type[BurstingWorker]) -> None:
    kind = type(slow.__name__, (slow,), {"behind": cluster.address(0)})
    async with _joined_by(cluster, kind), asyncio.timeout(_BURSTS_S):
        await _join(cluster)
    await asyncio.to_thread(cluster.coordinator.wait_for, r"hostile-0\.sock gets no new requests .*its tokens take", 1)


async def hide_identity(cluster: FaultyCluster) -> None:
    """Let a worker join that leaves out what it is; then another one is killed, whose streams it could continue."""
    async with _joined_by(cluster, NamelessWorker) as (worker,):
        await asyncio.to_thread(cluster.coordinator.wait_for, r"hostile-0\.sock: ", 60)
        cluster.kill(0)
        await _join(cluster)
        if worker.submits:
            raise AssertionError(f"it got {worker.submits} requests")


async def order_falsely(cluster: FaultyCluster) -> None:
    """Let workers join that announce a pause, weights and an epoch that nobody ordered."""
    honest = (await server_info(cluster.address(0))).welcome.serving
    lies = [attack.lie(Honest(honest, (honest,))) for attack in WORKER_ATTACKS if attack.name in _LIES]
    kinds = [type("LyingWorker", (LyingWorker,), {"lie": each}) for each in lies]
    async with _joined_by(cluster, *kinds):
        await _join(cluster)
        for number in cluster.workers:
            if (await server_info(cluster.address(number))).welcome.serving != honest:
                raise AssertionError(f"worker {number} follows a lie")


async def garble_metrics(cluster: FaultyCluster) -> None:
    """Let workers join whose metrics cannot be parsed; those of others still can."""
    async with _joined_by(cluster, DrainingWorker, DrainingWorker) as workers:
        workers[0].metrics_text = METRICS["unparsable metrics"]()
        workers[1].metrics_text = METRICS["unbounded metrics"]()
        async with httpx.AsyncClient(base_url=cluster.url, timeout=30) as client:
            for _ in range(_SCRAPES):
                text = (await client.get("/metrics")).text
                names = {family.name for family in text_string_to_metric_families(text)}
                if not any("worker" in name for name in names):
                    raise AssertionError(f"no metrics of workers: {sorted(names)[:5]}")
                await asyncio.sleep(0.2)


async def spend(cluster: FaultyCluster) -> None:
    """Send one expensive request after the other, each at its limits and beside streams that last for longer."""
    streams = []
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as others:  # who reads streams waits for none
        for name in _EXPENSIVE:
            streams += await cluster.begin_streams(_BESIDE)
            await asyncio.get_running_loop().run_in_executor(others, _send_expensive, cluster.url, name)
    await asyncio.gather(*streams)


def _send_expensive(url: str, name: str) -> None:
    attack = ROWS[name]
    asyncio.run(send_attack(url, attack, attack.body("simulated"), _EXPENSIVE_S))


async def take_all(cluster: FaultyCluster) -> None:
    """Let a client take all places and the queue by one request; then another one comes, from another address."""
    parts = urlsplit(cluster.url)
    body = {"model": "simulated", "prompt": "Hi", "n": 16_384, "max_tokens": 50, "ignore_eos": True}
    greedy = asyncio.create_task(_post(parts.port or 80, body))
    await asyncio.sleep(1.0)  # nothing shows that it has all places
    if greedy.done():
        raise AssertionError(f"the greedy request ended early: {greedy.result()[:200]!r}")
    await _join(cluster)
    greedy.cancel()
    await asyncio.wait([greedy])


async def _post(port: int, body: dict[str, object]) -> bytes:
    """Send a request from another address of this machine; return the end of its reply."""
    transport = httpx.AsyncHTTPTransport(local_address=_GREEDY_ADDRESS)
    async with httpx.AsyncClient(transport=transport, timeout=None) as client:  # noqa: S113 (until it is cancelled)
        reply = await client.post(f"http://127.0.0.1:{port}/v1/completions", json=body)
        return reply.content


def _was_used(workers: Sequence[HostileWorker]) -> None:
    if not all(worker.submits for worker in workers):
        raise AssertionError("a hostile worker got no request")
