"""The pool with workers on real sockets: routing, capacity, and workers that come and go.

One file, since all tests are of one class and share its workers.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.workers import (
    Listener,
    SessionContext,
    accept,
    running_worker,
    scripted_worker,
    send,
    submission,
    unix_address,
    until,
    welcome,
)
from tokenwire.coordinator.fleet.admin import FleetAdmin
from tokenwire.coordinator.fleet.admission.queue import AdmissionQueue
from tokenwire.coordinator.fleet.admission.settings import AdmissionSettings
from tokenwire.coordinator.fleet.desired_state import DesiredStates
from tokenwire.coordinator.fleet.failover.settings import FailoverStats
from tokenwire.coordinator.fleet.outliers import OutlierDetector, OutlierSettings
from tokenwire.coordinator.fleet.placed_request import PlacedRequest
from tokenwire.coordinator.fleet.pool import WorkerPool
from tokenwire.coordinator.fleet.pool_listener import PoolListener
from tokenwire.coordinator.fleet.request_handle import NEW, Placement
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.coordinator.fleet.session_listener import SessionState
from tokenwire.coordinator.fleet.status import FleetStatus
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.coordinator.observability.metrics.fleet import FleetCollector
from tokenwire.errors import InvalidRequest, RevisionLost
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.server import WorkerServer
from tokenwire.worker.simulated_engine.engine import SimulatedEngine
from tokenwire.worker.simulated_engine.settings import SimulationSettings

MODEL = "simulated"
LONG = 20_000


@asynccontextmanager
async def ready_pool(
    *addresses: str,
    ready: int | None = None,
    outliers: OutlierDetector[WorkerSession] | None = None,
    processes: int = 1,
) -> AsyncIterator[WorkerPool]:
    """Run a pool; wait until the given number of its workers, or all of them, are ready."""
    pool = WorkerPool("test", accept, outliers=outliers, processes=processes)
    pool.update(addresses)
    count = len(addresses) if ready is None else ready
    try:
        await until(lambda: sum(session.state is SessionState.READY for session in pool.sessions) == count)
        yield pool
    finally:
        await pool.stop()


@pytest.fixture
async def workers(tmp_path: Path) -> AsyncIterator[list[WorkerServer]]:
    """Three workers."""
    one, two, three = (unix_address(tmp_path, name) for name in ("one", "two", "three"))
    async with running_worker(one) as first, running_worker(two) as second, running_worker(three) as third:
        yield [first, second, third]


@pytest.fixture
async def pool(workers: list[WorkerServer]) -> AsyncIterator[WorkerPool]:
    """A pool of the three workers."""
    async with ready_pool(*(worker.address for worker in workers)) as pool:
        yield pool


def submit_to(
    pool: WorkerPool, max_tokens: int = LONG, n: int = 1, model: str = MODEL
) -> tuple[PlacedRequest, list[Listener]]:
    """Submit a request; return it with its listeners."""
    listeners = [Listener() for _ in range(n)]
    return send(pool, submission(max_tokens), listeners, model), listeners


async def test_the_least_loaded_worker_is_taken(pool: WorkerPool) -> None:
    """Load is counted in sequences, not requests."""
    first, _ = submit_to(pool, n=3)
    second, _ = submit_to(pool, n=1)
    third, _ = submit_to(pool, n=2)
    assert {first.session, second.session, third.session} == set(pool.sessions)

    assert submit_to(pool)[0].session is second.session
    assert {submit_to(pool)[0].session, submit_to(pool)[0].session} == {second.session, third.session}


async def test_equally_loaded_workers_alternate(pool: WorkerPool) -> None:
    """Requests rotate through an idle fleet, so that no worker stays cold."""
    turns = []
    for _ in range(6):
        placed, (listener,) = submit_to(pool, max_tokens=1)
        turns.append(placed.session.address)
        await listener.ended.wait()

    assert turns[:3] == turns[3:]
    assert len(set(turns)) == 3


async def test_no_worker_gets_more_sequences_than_it_has_room_for(tmp_path: Path) -> None:
    """As many as have room go to one that has it for all, else to the one with most room."""
    one, two = unix_address(tmp_path, "one"), unix_address(tmp_path, "two")
    async with (
        running_worker(one, max_num_seqs=1),  # and two more in its lead
        running_worker(two, max_num_seqs=3),
        ready_pool(one, two) as pool,
    ):
        sent = [submit_to(pool, n=n)[0] for n in (4, 9, 1)]

        assert [placed.session.address for placed in sent] == [two, one, two]
        assert [len(placed.listeners) for placed in sent] == [4, 3, 1]
        assert [session.open_slots for session in pool.sessions] == [3, 5]
        assert pool.try_submit(MODEL, submission(), [Listener()]) is None


async def test_a_tenant_leaves_places_of_which_it_would_keep_all(tmp_path: Path) -> None:
    """Also where a worker takes more than it runs at a time; not of those that can be taken back."""
    address = unix_address(tmp_path, "one")
    async with running_worker(address, max_num_seqs=8), ready_pool(address) as pool:
        keeping = Placement(tenant="greedy", keeps_place=True)
        kept = pool.try_submit(MODEL, submission(LONG), [Listener() for _ in range(20)], keeping)

        assert kept is not None
        assert len(kept.listeners) == 7
        assert pool.try_submit(MODEL, submission(LONG), [Listener()], keeping) is None
        assert not pool.candidates_to_place(MODEL, 0, keeping)
        assert pool.try_submit(MODEL, submission(LONG), [Listener()], Placement(tenant="other", keeps_place=True))
        assert pool.try_submit(MODEL, submission(LONG), [Listener()], Placement(tenant="greedy"))
        kept.abort()
        await until(lambda: pool.sessions[0].room_to_keep("greedy") > 0)
        assert pool.try_submit(MODEL, submission(LONG), [Listener()], keeping)


async def test_each_process_has_its_part_of_the_places_that_tenants_keep(tmp_path: Path) -> None:
    """It does not know what the others keep."""
    address = unix_address(tmp_path, "one")
    async with running_worker(address, max_num_seqs=32), ready_pool(address, processes=2) as pool:
        keeping = Placement(tenant="greedy", keeps_place=True)
        kept = pool.try_submit(MODEL, submission(LONG), [Listener() for _ in range(32)], keeping)

        assert kept is not None
        assert len(kept.listeners) == 14
        assert not pool.candidates_to_place(MODEL, 0, keeping)


async def test_slots_count_until_their_terminal_event(pool: WorkerPool, workers: list[WorkerServer]) -> None:
    """An aborted request counts as load until its worker has ended it."""
    placed, (listener,) = submit_to(pool)
    await listener.moved.wait()

    placed.abort()

    assert pool.open_slots == 1
    await until(lambda: pool.open_slots == 0)
    assert sum(worker.server_info().open_slots for worker in workers) == 0


async def test_a_draining_worker_gets_no_new_requests(pool: WorkerPool, workers: list[WorkerServer]) -> None:
    """Once it has announced that it drains, new requests go to the others; its own request finishes."""
    running, (listener,) = submit_to(pool, max_tokens=50)
    await listener.moved.wait()
    (stopping,) = [worker for worker in workers if worker.address == running.session.address]
    draining = asyncio.create_task(stopping.drain(30))
    await until(lambda: running.session.state is SessionState.DRAINING)

    others = {submit_to(pool)[0].session for _ in range(20)}

    assert others == set(pool.sessions) - {running.session}
    assert pool.is_ready()
    await listener.ended.wait()
    assert len(listener.token_ids) == 50
    await draining


class ToldOutliers(OutlierDetector[WorkerSession]):
    """Ejects and readmits what a test says."""

    def __init__(self) -> None:
        super().__init__(OutlierSettings())
        self.told: list[tuple[WorkerSession, str]] = []

    def check(
        self,
        workers: Sequence[WorkerSession],
        is_covered: Callable[[WorkerSession], bool],
        is_replaced: Callable[[WorkerSession], bool] = lambda worker: False,
    ) -> list[WorkerSession]:
        """Return what the test says, once."""
        told, self.told = self.told, []
        for session, why in told:
            assert is_covered(session)
            session.ejected = why
        return [session for session, _ in told]


class EjectionRecorder(PoolListener):
    """Records ejections."""

    def __init__(self) -> None:
        self.events: list[tuple[str, WorkerSession]] = []

    def on_worker_ejected(self, session: WorkerSession) -> None:
        """Record."""
        self.events.append(("ejected", session))

    def on_worker_readmitted(self, session: WorkerSession) -> None:
        """Record."""
        self.events.append(("readmitted", session))

    def on_capacity(self) -> None:
        """Record."""
        self.events += [("capacity", session) for _, session in self.events[-1:]]


async def test_an_ejected_worker_gets_no_new_requests(workers: list[WorkerServer]) -> None:
    """Until it is readmitted; listeners are told, its state shows it, and it is half-open at first."""
    outliers, recorder = ToldOutliers(), EjectionRecorder()
    async with ready_pool(*(worker.address for worker in workers), outliers=outliers) as pool:
        pool.subscribe(recorder)
        slow = pool.sessions[0]
        status = FleetStatus(pool, FleetAdmin(pool, DesiredStates(), 1.0))
        collector = FleetCollector(pool, AdmissionQueue(pool, AdmissionSettings()), FailoverStats())
        outliers.told.append((slow, "it is slow"))
        await until(lambda: bool(recorder.events))
        assert recorder.events == [("ejected", slow)]
        assert {submit_to(pool, max_tokens=1)[0].session for _ in range(9)} == set(pool.sessions[1:])
        assert status.of(slow).reason == "it is slow"
        states = next(iter(collector.collect())).samples
        assert [each.labels["state"] for each in states if each.value].count("ejected") == 1

        recorder.events.clear()
        outliers.told.append((slow, ""))
        await until(lambda: ("capacity", slow) in recorder.events)
        assert recorder.events[-2:] == [("readmitted", slow), ("capacity", slow)]
        assert slow.breaker.half_open
        assert slow in {submit_to(pool, max_tokens=1)[0].session for _ in range(9)}
        await until(lambda: not slow.breaker.half_open)


async def test_only_workers_of_the_model_are_taken(tmp_path: Path) -> None:
    """Its first name selects them; an unknown one is unavailable, as is one that is only a further name."""
    one, two = unix_address(tmp_path, "one"), unix_address(tmp_path, "two")
    async with (
        running_worker(one, served_model_names=("red", "crimson")),
        running_worker(two, served_model_names=("blue",)),
        ready_pool(one, two) as pool,
    ):
        assert {submit_to(pool, model="red")[0].session.address for _ in range(5)} == {one}
        assert {submit_to(pool, model="blue")[0].session.address for _ in range(5)} == {two}
        assert pool.try_submit("crimson", submission(), [Listener()]) is None
        assert pool.try_submit("green", submission(), [Listener()]) is None
        assert pool.unavailable_reason("green").startswith("No worker serves green")


async def test_without_a_ready_worker_the_reasons_are_named(tmp_path: Path) -> None:
    """The reason names each worker, its state and its last error."""
    missing, draining = unix_address(tmp_path, "missing"), unix_address(tmp_path, "draining")
    async with running_worker(draining) as worker:
        await worker.drain(0)
        async with ready_pool(missing, draining, ready=0) as pool:
            await until(lambda: pool.sessions[1].state is SessionState.DRAINING)

            assert not pool.is_ready()
            reason = pool.unavailable_reason(MODEL)

    assert f"{missing} is connecting (" in reason
    assert f"{draining} is draining" in reason


async def test_a_pool_is_ready_with_its_first_worker(tmp_path: Path) -> None:
    """One worker of two is enough."""
    missing, present = unix_address(tmp_path, "missing"), unix_address(tmp_path, "present")
    async with running_worker(present), ready_pool(missing, present, ready=1) as pool:
        await asyncio.wait_for(pool.wait_ready(), 10)

        assert pool.is_ready()
        assert submit_to(pool)[0].session.address == present


async def test_an_abort_does_not_affect_the_next_request_of_a_slot(pool: WorkerPool) -> None:
    """A handle aborts only its own sequences, once, however late it is called."""
    placed, (listener,) = submit_to(pool, max_tokens=1)
    await listener.ended.wait()
    others = [submit_to(pool) for _ in range(3)]
    (next_one,) = [later for later, _ in others if later.session is placed.session]
    assert next_one.slots == placed.slots

    placed.abort()
    placed.abort()

    for later, (other,) in others:
        await other.moved.wait()
        assert later.session.listens(later.slots[0], other)


async def test_stopping_ends_every_request(workers: list[WorkerServer]) -> None:
    """When a pool stops, listeners fail and workers have no requests left."""
    async with ready_pool(*(worker.address for worker in workers)) as pool:
        listeners = [submit_to(pool)[1][0] for _ in range(6)]
        for listener in listeners:
            await listener.moved.wait()

    for listener in listeners:
        assert listener.error is not None
    await until(lambda: sum(worker.server_info().open_slots for worker in workers) == 0)


async def test_workers_come_and_go(workers: list[WorkerServer]) -> None:
    """A worker that is added gets requests; one that is removed gets none, and its session closes."""
    first, second, _ = (worker.address for worker in workers)
    async with ready_pool() as pool:
        assert "no workers found" in pool.unavailable_reason(MODEL)
        assert not pool.is_ready()

        pool.update([first])
        await asyncio.wait_for(pool.wait_ready(), 10)
        pool.update([first, second])
        await until(lambda: sum(session.state is SessionState.READY for session in pool.sessions) == 2)
        assert {submit_to(pool, max_tokens=1)[0].session.address for _ in range(4)} == {first, second}

        pool.update([second])
        assert {submit_to(pool, max_tokens=1)[0].session.address for _ in range(4)} == {second}
        await until(lambda: [session.address for session in pool.sessions] == [second])
        await until(lambda: workers[0].server_info().sessions == 0)


async def test_a_removed_worker_finishes_its_requests(workers: list[WorkerServer]) -> None:
    """Its session stays until the last slot has ended."""
    address = workers[0].address
    async with ready_pool(address) as pool:
        _, (listener,) = submit_to(pool, max_tokens=100)
        await listener.moved.wait()

        pool.update([])

        assert not pool.is_ready()
        assert "is draining" in pool.unavailable_reason(MODEL)
        await listener.ended.wait()
        assert listener.error is None
        assert len(listener.token_ids) == 100
        await until(lambda: not pool.sessions)


async def test_a_removed_worker_that_never_ends_aborted_slots_is_left(tmp_path: Path) -> None:
    """Nobody waits for them."""

    async def never_ends(requests: AsyncIterator[pb.SessionRequest], context: SessionContext) -> None:
        await anext(requests)
        await context.write(welcome(names=[MODEL]))
        async for _ in requests:
            pass

    address = unix_address(tmp_path)
    async with scripted_worker(address, never_ends), ready_pool(address) as pool:
        placed, _ = submit_to(pool)
        pool.update([])
        placed.abort()
        assert pool.open_slots == 1
        await until(lambda: not pool.sessions)


async def test_a_worker_that_is_listed_again_keeps_its_session(workers: list[WorkerServer]) -> None:
    """A worker removed by mistake and listed again while its requests still run continues unaffected."""
    address = workers[0].address
    async with ready_pool(address) as pool:
        placed, (listener,) = submit_to(pool)
        await listener.moved.wait()
        pool.update([])

        pool.update([address])

        again, _ = submit_to(pool)
        assert again.session is placed.session
        placed.abort()
        again.abort()
        await until(lambda: pool.open_slots == 0)
        await asyncio.sleep(0.3)  # nothing signals that the removal was cancelled
        assert pool.sessions == [placed.session]


async def test_a_draining_worker_is_not_readmitted_when_it_is_listed_again(workers: list[WorkerServer]) -> None:
    """It refuses requests, whether it is listed or not."""
    address = workers[0].address
    async with ready_pool(address) as pool:
        placed, (listener,) = submit_to(pool)
        await listener.moved.wait()
        draining = asyncio.create_task(workers[0].drain(30))
        await until(lambda: not pool.is_ready())

        pool.update([])
        pool.update([address])

        assert placed.session.state is SessionState.DRAINING
        placed.abort()
        await draining


class BrokenListener(PoolListener):
    """Raises when it is called."""

    def on_capacity(self) -> None:
        """Raise."""
        raise ValueError("broken")

    def on_worker_lost(
        self, model: str, instance_id: str, certain: bool, recent_starts: Sequence[Submission], unproven_at: str = ""
    ) -> None:
        """Raise."""
        raise ValueError("broken")


class Recorder(PoolListener):
    """Records what it is called with."""

    def __init__(self) -> None:
        self.capacity = asyncio.Event()
        self.lost: list[tuple[str, str]] = []
        self.models: list[str] = []

    def on_capacity(self) -> None:
        """Record the call."""
        self.capacity.set()

    def on_worker_lost(
        self, model: str, instance_id: str, certain: bool, recent_starts: Sequence[Submission], unproven_at: str = ""
    ) -> None:
        """Record the worker."""
        self.lost.append((model, instance_id))

    def on_model_lost(self, model: str) -> None:
        """Record the model."""
        self.models.append(model)


class Deaf(PoolListener):
    """Has a use for nothing."""


async def test_only_who_has_a_use_for_it_is_called_for_each_request(pool: WorkerPool) -> None:
    """The others are called for what is rarer."""
    recorder, deaf = Recorder(), Deaf()
    pool.subscribe(deaf)
    pool.subscribe(recorder)

    assert deaf in pool._listeners
    assert recorder.on_capacity in pool._on_capacity
    assert deaf.on_capacity not in pool._on_capacity
    assert deaf.on_worker_survived not in pool._on_survived


async def test_a_listener_that_raises_affects_no_other(pool: WorkerPool) -> None:
    """The others are still called when sequences end, and the session continues."""
    recorder = Recorder()
    pool.subscribe(BrokenListener())
    pool.subscribe(recorder)
    _, (listener,) = submit_to(pool, max_tokens=1)
    await listener.ended.wait()

    await asyncio.wait_for(recorder.capacity.wait(), 10)
    assert all(session.state is SessionState.READY for session in pool.sessions)


async def test_listeners_are_called_for_each_lost_worker_and_once_for_its_model(tmp_path: Path) -> None:
    """A model is lost with its last worker."""
    addresses = [unix_address(tmp_path, name) for name in ("one", "two")]
    recorder, losses = Recorder(), []
    async with AsyncExitStack() as stack:
        running = [AsyncExitStack() for _ in addresses]
        for each, address in zip(running, addresses, strict=True):
            await each.enter_async_context(running_worker(address))
            stack.push_async_callback(each.aclose)
        pool = await stack.enter_async_context(ready_pool(*addresses))
        pool.subscribe(BrokenListener())
        pool.subscribe(recorder)
        for _ in addresses:
            placed, _ = submit_to(pool, max_tokens=LONG)
            losses.append((MODEL, placed.session.instance_id))
            await running[addresses.index(placed.session.address)].aclose()
            await until(lambda: len(recorder.lost) == len(losses))
            assert recorder.models == [MODEL] * (len(losses) - 1)

    assert recorder.lost == losses


async def test_a_worker_has_capacity_for_its_maximum_and_a_few_more(tmp_path: Path) -> None:
    """Submitted sequences count at once; capacity is freed when they end, and listeners are called."""
    address = unix_address(tmp_path)
    async with running_worker(address, max_num_seqs=4), ready_pool(address) as pool:
        assert (pool.free_capacity(MODEL), pool.usual_queue(MODEL)) == (6, 4)
        assert pool.free_capacity("another") == 0
        recorder = Recorder()
        pool.subscribe(recorder)

        placed, _ = submit_to(pool, n=4)
        _, (short,) = submit_to(pool, max_tokens=5)
        assert pool.free_capacity(MODEL) == 1
        submit_to(pool, n=5)
        assert pool.free_capacity(MODEL) == 0
        assert pool.try_submit(MODEL, submission(), [Listener()]) is None

        placed.abort()
        await short.ended.wait()
        await until(lambda: pool.free_capacity(MODEL) > 0)
        assert recorder.capacity.is_set()


async def test_what_a_worker_claims_is_believed_as_far_as_its_siblings_are_like_it(tmp_path: Path) -> None:
    """One that claims any number gets twice their share of new requests at most."""
    addresses = [unix_address(tmp_path, name) for name in ("modest", "boasting")]
    async with (
        running_worker(addresses[0], max_num_seqs=4),
        running_worker(addresses[1], max_num_seqs=2**32 - 1),
        ready_pool(*addresses) as pool,
    ):
        (revision,) = pool.live_revisions(MODEL)

        assert pool.plausible_capacity(MODEL, revision) == 6 + 2 * 4


async def test_a_full_kv_cache_leaves_no_capacity(tmp_path: Path) -> None:
    """Where sequences wait for memory, more of them would only wait there too."""
    address = unix_address(tmp_path)
    async with (
        running_worker(address, max_num_seqs=64, kv_tokens=32_768, max_model_len=16_384) as _,
        ready_pool(address) as pool,
    ):
        (session,) = pool.sessions
        submit_to(pool, max_tokens=LONG)
        await until(lambda: session.workload.load.running == 1)
        assert pool.free_capacity(MODEL) == 67

        session.workload.on_load(pb.Load(running=1, waiting=3, kv_cache_usage=0.97))
        assert pool.free_capacity(MODEL) <= 1


async def test_requests_go_to_a_worker_with_capacity(tmp_path: Path) -> None:
    """A worker without free capacity gets no request while another one has some, whatever is in its cache."""
    one, two = unix_address(tmp_path, "one"), unix_address(tmp_path, "two")
    prompt = replace(submission(LONG), prompt_token_ids=[65] * 8192)
    async with (
        running_worker(one, max_num_seqs=1),
        running_worker(two, max_num_seqs=1),
        ready_pool(one, two) as pool,
    ):
        first = Listener()
        chosen = [send(pool, prompt, [first]).session.address]
        await first.moved.wait()
        chosen += [send(pool, prompt, [Listener()]).session.address for _ in range(5)]
        assert (chosen.count(one), chosen.count(two)) == (3, 3)
        assert not pool.free_capacity(MODEL)


class OlderEngine(SimulatedEngine):
    """An engine without a sampling parameter, as older minors of vLLM are."""

    def capabilities(self) -> pb.EngineCapabilities:
        """Return how the engine samples."""
        capabilities = super().capabilities()
        capabilities.unsupported.append("watermarking")
        return capabilities


async def test_a_request_goes_to_a_worker_that_has_its_parameters(tmp_path: Path) -> None:
    """Where none has them it is rejected; other requests are served."""
    older, newer = unix_address(tmp_path, "older"), unix_address(tmp_path, "newer")
    watermarked = submission()
    watermarked.sampling_params.watermarking = True
    async with (
        running_worker(older, OlderEngine(SimulationSettings(step_ms=1))),
        running_worker(newer),
        ready_pool(older, newer) as pool,
    ):
        placed = [send(pool, watermarked, [Listener()]) for _ in range(6)]
        assert {each.session.address for each in placed} == {newer}

        pool.update([older])
        await until(lambda: newer not in {session.address for session in pool.sessions})
        with pytest.raises(InvalidRequest, match=f"No worker of {MODEL} supports watermarking") as refused:
            send(pool, watermarked, [Listener()])
        assert refused.value.param == "watermarking"
        with pytest.raises(RevisionLost, match="The last worker is gone that could go on with this reply"):
            send(pool, watermarked, [Listener()], placement=replace(NEW, begun=True, resumed=True))
        with pytest.raises(InvalidRequest, match="No worker of"):  # as the first of several inputs to pool
            send(pool, watermarked, [Listener()], placement=replace(NEW, begun=True))
        send(pool, submission(), [Listener()])


@pytest.mark.parametrize(
    ("lacks", "needs", "param"),
    [
        ("seed", {"sampling_params": pb.SamplingParams(seed=5)}, "seed"),
        (
            "structured_outputs.structural_tag",
            {
                "sampling_params": pb.SamplingParams(
                    structured_outputs=pb.StructuredOutputs(structural_tag="{}"), temperature=0
                )
            },
            "structured_outputs.structural_tag",
        ),
        (
            "kv_transfer_params",
            {"sampling_params": pb.SamplingParams(kv_transfer_params_json='{"do_remote_decode": true}')},
            "kv_transfer_params",
        ),
    ],
)
async def test_routing_obeys_what_workers_announce(
    lacks: str, needs: dict[str, Any], param: str, tmp_path: Path
) -> None:
    """Whatever it is that they lack: a request that needs it goes to another one, or is rejected."""
    lacking, able = unix_address(tmp_path, "lacking"), unix_address(tmp_path, "able")
    request = replace(submission(), **needs)
    async with (
        running_worker(lacking, unsupported=(lacks,)),
        running_worker(able),
        ready_pool(lacking, able) as pool,
    ):
        placed = [pool.try_submit(MODEL, replace(request), [Listener()]) for _ in range(4)]
        assert {each.session.address for each in placed if each is not None} == {able}

        pool.update([lacking])
        await until(lambda: able not in {session.address for session in pool.sessions}, 60)  # a compiler starts
        with pytest.raises(InvalidRequest, match=f"No worker of {MODEL} supports {lacks}") as refused:
            pool.try_submit(MODEL, replace(request), [Listener()])
        assert refused.value.param == param


async def test_an_error_says_what_no_worker_has_together(tmp_path: Path) -> None:
    """Each of two workers has one of the two things that a request needs; one of them lacks a third as well."""
    unseeded, unscored = unix_address(tmp_path, "unseeded"), unix_address(tmp_path, "unscored")
    request = replace(submission(), sampling_params=pb.SamplingParams(seed=5, prompt_logprobs=1, watermarking=True))
    async with (
        running_worker(unseeded, unsupported=("seed",)),
        running_worker(unscored, unsupported=("prompt_logprobs", "logit_bias")),
        ready_pool(unseeded, unscored) as pool,
    ):
        assert pool.scarce_needs(MODEL, request) == {"seed", "prompt_logprobs"}
        assert pool.scarce_needs(MODEL, submission()) == frozenset()
        with pytest.raises(InvalidRequest, match=f"No worker of {MODEL} supports all of prompt_logprobs, seed,"):
            pool.try_submit(MODEL, request, [Listener()])


async def test_a_request_waits_for_the_worker_that_has_its_parameters(tmp_path: Path) -> None:
    """As long as that is listed: it may be starting again."""
    older, newer = unix_address(tmp_path, "older"), unix_address(tmp_path, "newer")
    watermarked = submission()
    watermarked.sampling_params.watermarking = True
    async with running_worker(older, OlderEngine(SimulationSettings(step_ms=1))):
        async with running_worker(newer), AsyncExitStack() as stack:
            pool = await stack.enter_async_context(ready_pool(older, newer))
            kept = stack.pop_all()
        async with kept:
            await until(lambda: sum(session.state is SessionState.READY for session in pool.sessions) == 1)
            assert pool.try_submit(MODEL, watermarked, [Listener()]) is None


async def test_a_worker_that_names_another_model_each_time_leaves_nothing_behind(tmp_path: Path) -> None:
    """Statistics and versions are those of models that have workers."""
    names = iter(("first", "second"))
    address = unix_address(tmp_path)

    async def script(requests: AsyncIterator[object], context: SessionContext) -> None:
        await anext(requests)
        if name := next(names, None):
            greeting = welcome(names=(name,))
            greeting.welcome.serving.weight_version = "v"
            await context.write(greeting)
        if name == "second":
            await anext(requests)

    async with scripted_worker(address, script), ready_pool(address, ready=0) as pool:
        await until(lambda: list(pool.stats_by_model) == ["second"])
        assert list(pool._desired._versions) == ["second"]


async def test_a_worker_whose_names_are_too_long_is_refused_visibly(tmp_path: Path) -> None:
    """Its status says why, and metrics know nothing of it."""
    address = unix_address(tmp_path)

    async def script(requests: AsyncIterator[object], context: SessionContext) -> None:
        await anext(requests)
        await context.write(welcome(names=("n" * 1_000_000,)))
        await anext(requests)

    async with scripted_worker(address, script), ready_pool(address, ready=0) as pool:
        await until(lambda: "1,000,000 characters of model.names" in pool.sessions[0].last_error)
        assert (pool.sessions[0].model_name, dict(pool.stats_by_model)) == ("", {})
