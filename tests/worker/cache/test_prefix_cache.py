"""Prefix cache contents are published from a simulated engine to coordinators."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.worker.simulated_engine.simulation import simulation
from tests.workers import Listener, accept, running_worker, send, unix_address, until
from tokenwire.coordinator.fleet.placed_request import PlacedRequest
from tokenwire.coordinator.fleet.pool import WorkerPool
from tokenwire.coordinator.fleet.routing import Candidate, Router
from tokenwire.coordinator.fleet.session_listener import SessionState
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.protocol.prefix_hash import BLOCK_TOKENS, prefix_hashes, scope_of
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.cache.prefix_cache import CacheChange, KvEventPublisher
from tokenwire.worker.simulated_engine.engine import SimulationSettings

PROMPT = [token % 256 for token in range(4 * BLOCK_TOKENS + 10)]


def test_changes_are_merged() -> None:
    """A prefix stored and removed is dropped, one removed and stored is kept; a clear drops all earlier changes."""
    change = CacheChange()
    change.store(1)
    change.remove(1)
    change.remove(2)
    change.store(2)
    change.remove(3)
    assert (change.stored, change.removed) == ({2}, {1, 3})

    later = CacheChange(cleared=True, stored=[5])
    later.remove(6)
    change.add(later)
    assert (change.cleared, change.stored, change.removed) == (True, {5}, set())
    assert change.to_event().cache == pb.CacheChange(cleared=True, stored=[5])


async def test_the_simulated_cache_publishes_prompts_and_replies() -> None:
    """With the prefix hashes of their ids, until they are evicted."""
    settings = SimulationSettings(step_ms=0, kv_events=True, kv_tokens=1024, max_model_len=512)
    received = CacheChange()
    async with simulation(settings) as harness:
        assert harness.engine.subscribe_kv_events(received.add)
        reply = await harness.run(PROMPT, max_tokens=200)
        assert received.stored == set(prefix_hashes([*PROMPT, *reply.ids]))

        salted = pb.Submit(cache_salt="salt", lora=pb.LoraAdapter(id=3))
        await harness.run(PROMPT, max_tokens=1, submit=salted)
        assert received.stored > set(prefix_hashes(PROMPT, scope_of("salt", 3)))

        for first in range(2):
            await harness.run([255 - first, *PROMPT], max_tokens=200)
        assert received.removed & set(prefix_hashes([*PROMPT, *reply.ids]))
        assert len(received.stored) <= 1024 // BLOCK_TOKENS

        assert await harness.engine.reset_cache(reset_running_requests=False, reset_external=False)
        assert (received.cleared, received.stored) == (True, set())


async def test_an_engine_without_kv_events_publishes_nothing() -> None:
    """There is no snapshot, and no change is published."""
    async with simulation() as harness:
        publisher = KvEventPublisher(lambda change: pytest.fail("a change was published"))
        publisher.start(harness.engine)
        await harness.run(PROMPT)
        assert publisher.snapshot() is None


class RecordingRouter(Router):
    """A router that records which prefixes workers have stored."""

    def __init__(self) -> None:
        super().__init__()
        self.stored: dict[str, set[int]] = {}

    def on_kv_events(self, worker: Candidate, change: pb.CacheChange) -> None:
        """Record the stored prefixes."""
        super().on_kv_events(worker, change)
        self.stored.setdefault(worker.address, set()).update(change.stored)


@asynccontextmanager
async def pool_with_router(*addresses: str) -> AsyncIterator[tuple[WorkerPool, RecordingRouter]]:
    """Run a pool with ready sessions."""
    router = RecordingRouter()
    pool = WorkerPool("test", accept, router=router)
    pool.update(addresses)
    await until(lambda: all(session.state is SessionState.READY for session in pool.sessions))
    yield pool, router
    await pool.stop()


async def compute(pool: WorkerPool, prompt: list[int]) -> PlacedRequest:
    """Run a request to its end and return it."""
    listener = Listener()
    placed = send(pool, Submission(prompt_token_ids=prompt, max_tokens=1), [listener])
    await listener.ended.wait()
    return placed


async def test_coordinators_receive_what_others_have_computed(tmp_path: Path) -> None:
    """They receive a snapshot on connecting and then changes; and their requests are routed accordingly."""
    addresses = [unix_address(tmp_path, name) for name in ("one", "two")]
    async with (
        running_worker(addresses[0], kv_events=True),
        running_worker(addresses[1], kv_events=True),
        pool_with_router(*addresses) as (first, observed),
    ):
        earlier = await compute(first, PROMPT)
        await until(lambda: observed.stored.get(earlier.session.address) == set(prefix_hashes(PROMPT)))
        async with pool_with_router(*addresses) as (second, received):
            await until(lambda: received.stored.get(earlier.session.address) == set(prefix_hashes(PROMPT)))
            later = await compute(first, PROMPT[::-1])
            assert later.session.address != earlier.session.address
            await until(lambda: received.stored.get(later.session.address) == set(prefix_hashes(PROMPT[::-1])))

            for placed, prompt in ((earlier, PROMPT), (later, PROMPT[::-1])):
                again = await compute(second, prompt)
                assert again.session.address == placed.session.address
                assert again.decision.cached == 4 * BLOCK_TOKENS
