"""Metrics of workers, queues and failover are their current state."""

from collections.abc import Iterator
from pathlib import Path

from tests.workers import Listener, accept, running_worker, send, submission, unix_address, until
from tokenwire.coordinator.fleet.admission.queue import AdmissionQueue
from tokenwire.coordinator.fleet.admission.settings import AdmissionSettings
from tokenwire.coordinator.fleet.failover.settings import FailoverStats
from tokenwire.coordinator.fleet.placed_memory import MemoryClaim
from tokenwire.coordinator.fleet.pool import WorkerPool
from tokenwire.coordinator.fleet.session_listener import SessionState
from tokenwire.coordinator.observability.metrics.fleet import FleetCollector


def samples(collector: FleetCollector, name: str) -> Iterator[tuple[dict[str, str], float]]:
    """Yield labels and value of each sample of this name."""
    for family in collector.collect():
        for sample in family.samples:
            if sample.name == f"tokenwire_{name}":
                yield sample.labels, sample.value


async def test_each_worker_has_one_current_state(tmp_path: Path) -> None:
    """A lost one has no load, and a removed one has no series."""
    address, gone = unix_address(tmp_path), unix_address(tmp_path, "gone")
    pool = WorkerPool("test", accept)
    collector = FleetCollector(pool, AdmissionQueue(pool, AdmissionSettings()), FailoverStats(resumed=2, poison=1))
    async with running_worker(address):
        pool.update([address, gone])
        await until(lambda: SessionState.READY in {session.state for session in pool.sessions})

        states = [(labels["worker"], labels["state"]) for labels, value in samples(collector, "worker_state") if value]
        assert sorted(states) == sorted([(address, "ready"), (gone, "connecting")])
        assert [labels for labels, _ in samples(collector, "worker_open_slots")] == [
            {"worker": address, "model": "simulated"}
        ]
        assert list(samples(collector, "queue_requests")) == [({"model": "simulated"}, 0)]
        pool.update([])
        await until(lambda: not pool.sessions)
    assert list(samples(collector, "worker_state")) == []
    results = {labels["result"]: value for labels, value in samples(collector, "failover_sequences_total")}
    assert results == {"resumed": 2, "replayed": 0, "failed": 0, "poison": 1}
    await pool.stop()


async def test_the_memory_of_what_workers_have_is_shown() -> None:
    """By what was claimed of it."""
    pool = WorkerPool("test", accept)
    queue = AdmissionQueue(pool, AdmissionSettings())
    queue.placed_memory.take(MemoryClaim(5))

    assert list(samples(FleetCollector(pool, queue, FailoverStats()), "placed_memory_bytes")) == [({}, 5)]


async def test_a_rollout_is_two_revisions_of_one_model(tmp_path: Path) -> None:
    """With the requests of each, as long as it has workers."""
    addresses = [unix_address(tmp_path, name) for name in ("old", "new")]
    pool = WorkerPool("test", accept)
    collector = FleetCollector(pool, AdmissionQueue(pool, AdmissionSettings()), FailoverStats())
    async with running_worker(addresses[0], seed=1), running_worker(addresses[1], seed=2):
        pool.update(addresses)
        await until(lambda: all(session.state is SessionState.READY for session in pool.sessions))
        revisions = {labels["worker"]: labels["revision"] for labels, _ in samples(collector, "worker_revision")}
        assert len(set(revisions.values())) == 2
        placed = send(pool, submission(), [Listener()])
        (counted,) = samples(collector, "revision_sequences_total")
        assert counted == ({"model": "simulated", "revision": revisions[placed.session.address]}, 1)
        pool.update([address for address in addresses if address != placed.session.address])
        await until(lambda: len(pool.sessions) == 1)
        assert not list(samples(collector, "revision_sequences_total"))
    await pool.stop()
