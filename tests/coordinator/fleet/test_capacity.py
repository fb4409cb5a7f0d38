"""How much room a pool's workers have, over real sockets."""

import asyncio
from pathlib import Path

from tests.coordinator.fleet.test_pool import LONG, connected, send
from tests.workers import Listener, running_worker, submission, unix_address, until
from tokenwire.v1 import inference_pb2 as pb

MODEL = "simulated"


async def test_a_worker_has_room_for_its_seats_and_a_lead(tmp_path: Path) -> None:
    """Sequences that are on their way count at once; room comes back with their end, and somebody is told."""
    address = unix_address(tmp_path)
    async with running_worker(address, max_num_seqs=4), connected(address) as pool:
        assert (pool.room(MODEL), pool.capacity(MODEL)) == (6, 4)
        assert pool.room("another") == 0
        changes = asyncio.Queue[None]()
        pool.subscribe(lambda: changes.put_nowait(None))

        ticket, _ = send(pool, n=4)
        _, (short,) = send(pool, max_tokens=5)
        assert pool.room(MODEL) == 1
        send(pool, n=5)
        assert pool.room(MODEL) == 0
        assert pool.try_submit(MODEL, submission(), [Listener()]) is None

        ticket.abort()
        await short.ended.wait()
        await until(lambda: pool.room(MODEL) > 0)
        assert not changes.empty()


async def test_a_full_cache_leaves_no_room(tmp_path: Path) -> None:
    """Where memory and not places is what sequences wait for, more of them would only wait there."""
    address = unix_address(tmp_path)
    async with (
        running_worker(address, max_num_seqs=64, kv_tokens=32_768, max_model_len=16_384) as _,
        connected(address) as pool,
    ):
        (session,) = pool.sessions
        send(pool, max_tokens=LONG)
        await until(lambda: session.workload.load.running == 1)
        assert pool.room(MODEL) == 67

        session.workload.on_load(pb.Load(running=1, waiting=3, kv_cache_usage=0.97))
        assert pool.room(MODEL) <= 1


async def test_requests_go_to_a_worker_with_room(tmp_path: Path) -> None:
    """A worker that would let a request wait gets none while another one would not, whatever it has in its cache."""
    one, two = unix_address(tmp_path, "one"), unix_address(tmp_path, "two")
    prompt = submission(LONG)
    prompt.prompt_token_ids[:] = [65] * 8192
    async with (
        running_worker(one, max_num_seqs=1),
        running_worker(two, max_num_seqs=1),
        connected(one, two) as pool,
    ):
        first = Listener()
        chosen = [pool.submit(MODEL, prompt, [first]).session.address]
        await first.moved.wait()
        chosen += [pool.submit(MODEL, prompt, [Listener()]).session.address for _ in range(5)]
        assert (chosen.count(one), chosen.count(two)) == (3, 3)
        assert not pool.room(MODEL)

        pool.submit(MODEL, prompt, [Listener()])  # without any room it goes somewhere all the same
