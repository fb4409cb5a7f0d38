"""The choice among workers, over real sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.workers import Listener, accept, running_worker, submission, unix_address, until
from tokenwire.coordinator.fleet.pool import WorkerPool
from tokenwire.coordinator.fleet.request_handle import PlacedRequest
from tokenwire.coordinator.fleet.session import SessionState
from tokenwire.errors import Unavailable
from tokenwire.worker.server import WorkerServer

MODEL = "simulated"
LONG = 20_000


@asynccontextmanager
async def connected(*addresses: str, ready: int | None = None) -> AsyncIterator[WorkerPool]:
    """Run a pool; so many of its workers are ready, or all of them."""
    pool = WorkerPool("test", accept)
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
    async with connected(*(worker.address for worker in workers)) as pool:
        yield pool


def send(
    pool: WorkerPool, max_tokens: int = LONG, n: int = 1, model: str = MODEL
) -> tuple[PlacedRequest, list[Listener]]:
    """Submit a request."""
    listeners = [Listener() for _ in range(n)]
    return pool.submit(model, submission(max_tokens), listeners), listeners


async def test_the_least_loaded_worker_is_taken(pool: WorkerPool) -> None:
    """Load is counted in sequences, not in requests."""
    first, _ = send(pool, n=3)
    second, _ = send(pool, n=1)
    third, _ = send(pool, n=2)
    assert {first.session, second.session, third.session} == set(pool.sessions)

    assert send(pool)[0].session is second.session
    assert {send(pool)[0].session, send(pool)[0].session} == {second.session, third.session}


async def test_equally_loaded_workers_take_turns(pool: WorkerPool) -> None:
    """An idle fleet gets requests one after the other, so that no worker is left cold."""
    turns = []
    for _ in range(6):
        ticket, (listener,) = send(pool, max_tokens=1)
        turns.append(ticket.session.address)
        await listener.ended.wait()

    assert turns[:3] == turns[3:]
    assert len(set(turns)) == 3


async def test_slots_count_until_their_terminal_event(pool: WorkerPool, workers: list[WorkerServer]) -> None:
    """A given-up request still loads its worker until that has ended it."""
    ticket, (listener,) = send(pool)
    await listener.moved.wait()

    ticket.abort()

    assert pool.open_slots == 1
    await until(lambda: pool.open_slots == 0)
    assert sum(worker.server_info().open_slots for worker in workers) == 0


async def test_a_draining_worker_gets_no_new_requests(pool: WorkerPool, workers: list[WorkerServer]) -> None:
    """From its announcement on, everything goes to the others; its own request runs to its end."""
    running, (listener,) = send(pool, max_tokens=50)
    await listener.moved.wait()
    (drained,) = [worker for worker in workers if worker.address == running.session.address]
    draining = asyncio.create_task(drained.drain(30))
    await until(lambda: running.session.state is SessionState.DRAINING)

    others = {send(pool)[0].session for _ in range(20)}

    assert others == set(pool.sessions) - {running.session}
    assert pool.is_ready()
    await listener.ended.wait()
    assert len(listener.token_ids) == 50
    await draining


async def test_only_workers_of_the_model_are_taken(tmp_path: Path) -> None:
    """A name leads to the workers that announced it, alias or not; an unknown one is unavailable."""
    one, two = unix_address(tmp_path, "one"), unix_address(tmp_path, "two")
    async with (
        running_worker(one, served_model_names=("red", "crimson")),
        running_worker(two, served_model_names=("blue",)),
        connected(one, two) as pool,
    ):
        assert {send(pool, model="red")[0].session.address for _ in range(5)} == {one}
        assert {send(pool, model="crimson")[0].session.address for _ in range(5)} == {one}
        assert {send(pool, model="blue")[0].session.address for _ in range(5)} == {two}
        with pytest.raises(Unavailable, match="No worker serves green") as caught:
            send(pool, model="green")
        assert caught.value.retry_after_s


async def test_without_a_worker_the_reasons_are_told(tmp_path: Path) -> None:
    """The error names each worker, its state, and what went wrong with it."""
    missing, draining = unix_address(tmp_path, "missing"), unix_address(tmp_path, "draining")
    async with running_worker(draining) as worker:
        await worker.drain(0)
        async with connected(missing, draining, ready=0) as pool:
            await until(lambda: pool.sessions[1].state is SessionState.DRAINING)

            assert not pool.is_ready()
            with pytest.raises(Unavailable) as caught:
                send(pool)

    assert f"{missing} is connecting (" in caught.value.message
    assert f"{draining} is draining" in caught.value.message


async def test_a_pool_is_ready_with_its_first_worker(tmp_path: Path) -> None:
    """One worker of two is enough."""
    missing, present = unix_address(tmp_path, "missing"), unix_address(tmp_path, "present")
    async with running_worker(present), connected(missing, present, ready=1) as pool:
        await asyncio.wait_for(pool.wait_ready(), 10)

        assert pool.is_ready()
        assert send(pool)[0].session.address == present


async def test_an_abort_spares_what_has_ended(pool: WorkerPool) -> None:
    """A ticket ends its own sequences only, once, however late it is used."""
    ticket, (listener,) = send(pool, max_tokens=1)
    await listener.ended.wait()
    tickets = [send(pool) for _ in range(3)]
    (next_one,) = [later for later, _ in tickets if later.session is ticket.session]
    assert next_one.slots == ticket.slots

    ticket.abort()
    ticket.abort()

    for later, (other,) in tickets:
        await other.moved.wait()
        assert later.session.listens(later.slots[0], other)


async def test_stopping_ends_every_request(workers: list[WorkerServer]) -> None:
    """When a pool stops, listeners fail and workers have no requests left."""
    async with connected(*(worker.address for worker in workers)) as pool:
        listeners = [send(pool)[1][0] for _ in range(6)]
        for listener in listeners:
            await listener.moved.wait()

    for listener in listeners:
        assert listener.error is not None
    await until(lambda: sum(worker.server_info().open_slots for worker in workers) == 0)


async def test_workers_come_and_go(workers: list[WorkerServer]) -> None:
    """A worker that is added gets requests; one that is left gets none, and its session closes."""
    first, second, _ = (worker.address for worker in workers)
    async with connected() as pool:
        with pytest.raises(Unavailable, match="no workers found"):
            send(pool)
        assert not pool.is_ready()

        pool.update([first])
        await asyncio.wait_for(pool.wait_ready(), 10)
        pool.update([first, second])
        await until(lambda: sum(session.state is SessionState.READY for session in pool.sessions) == 2)
        assert {send(pool, max_tokens=1)[0].session.address for _ in range(4)} == {first, second}

        pool.update([second])
        assert {send(pool, max_tokens=1)[0].session.address for _ in range(4)} == {second}
        await until(lambda: [session.address for session in pool.sessions] == [second])
        await until(lambda: workers[0].server_info().sessions == 0)


async def test_a_worker_that_is_left_finishes_its_requests(workers: list[WorkerServer]) -> None:
    """Its session stays until the last slot has ended."""
    address = workers[0].address
    async with connected(address) as pool:
        _, (listener,) = send(pool, max_tokens=100)
        await listener.moved.wait()

        pool.update([])

        assert not pool.is_ready()
        with pytest.raises(Unavailable, match="is draining"):
            send(pool)
        await listener.ended.wait()
        assert listener.error is None
        assert len(listener.token_ids) == 100
        await until(lambda: not pool.sessions)


async def test_a_worker_that_comes_back_keeps_its_session(workers: list[WorkerServer]) -> None:
    """What was left by mistake, and is named again while it still works, goes on as if nothing had been."""
    address = workers[0].address
    async with connected(address) as pool:
        ticket, (listener,) = send(pool)
        await listener.moved.wait()
        pool.update([])

        pool.update([address])

        again, _ = send(pool)
        assert again.session is ticket.session
        ticket.abort()
        again.abort()
        await until(lambda: pool.open_slots == 0)
        await asyncio.sleep(0.3)  # nothing tells that it is not left after all
        assert pool.sessions == [ticket.session]


async def test_a_worker_that_drains_is_not_readmitted_by_its_name(workers: list[WorkerServer]) -> None:
    """That it is named again does not make a worker take requests that refuses them."""
    address = workers[0].address
    async with connected(address) as pool:
        ticket, (listener,) = send(pool)
        await listener.moved.wait()
        draining = asyncio.create_task(workers[0].drain(30))
        await until(lambda: not pool.is_ready())

        pool.update([])
        pool.update([address])

        assert ticket.session.state is SessionState.DRAINING
        ticket.abort()
        await draining


async def test_a_subscriber_that_breaks_breaks_alone(pool: WorkerPool) -> None:
    """Others hear that sequences ended, and the session goes on."""
    changed = asyncio.Event()

    def break_down() -> None:
        raise ValueError("broken")

    pool.subscribe(break_down)
    pool.subscribe(changed.set)
    _, (listener,) = send(pool, max_tokens=1)
    await listener.ended.wait()

    await asyncio.wait_for(changed.wait(), 10)
    assert all(session.state is SessionState.READY for session in pool.sessions)
