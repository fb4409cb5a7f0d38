"""Which requests may be placed, by what all of them take; the others wait in the queue as for a worker."""

import asyncio

import pytest

from tests.coordinator.fleet.admission.fakes import MODEL, CapacityWorkers, enqueue
from tokenwire.coordinator.fleet.admission.queue import AdmissionQueue
from tokenwire.coordinator.fleet.admission.settings import AdmissionSettings
from tokenwire.coordinator.fleet.placed_memory import MemoryClaim, PlacedMemory
from tokenwire.coordinator.fleet.request_handle import Placement
from tokenwire.errors import InvalidRequest, TokenwireError, Unavailable

MIB = 2**20


def memory_of(mib: int) -> PlacedMemory:
    """Return memory that nobody waits for."""
    return PlacedMemory(mib * MIB, lambda: None)


def test_small_requests_may_take_all_of_it() -> None:
    """Each until it ends."""
    memory = memory_of(2)
    first, second, third = (MemoryClaim(MIB) for _ in range(3))
    memory.take(first)
    assert memory.allows(second)
    memory.take(second)
    assert not memory.allows(third)

    first.release()
    first.release()

    assert memory.allows(third)
    assert memory.held_bytes == MIB


def test_large_requests_leave_half_of_it_to_others() -> None:
    """So that others need not wait for them."""
    memory = memory_of(10)
    memory.take(MemoryClaim(3 * MIB))

    assert not memory.allows(MemoryClaim(3 * MIB))
    assert memory.allows(MemoryClaim(2 * MIB))
    assert memory.allows(MemoryClaim(MIB))


def test_while_a_large_request_waits_others_leave_it_half() -> None:
    """Else new ones would always take what it waits for."""
    memory = memory_of(10)
    for _ in range(5):
        memory.take(MemoryClaim(MIB))
    assert memory.allows(MemoryClaim(MIB))

    memory.wait(1)
    assert not memory.allows(MemoryClaim(MIB))
    memory.wait(-1)

    assert memory.allows(MemoryClaim(MIB))


def test_a_request_that_began_may_go_on() -> None:
    """With further choices, or on another worker: it takes what it has."""
    memory = memory_of(2)
    claim = MemoryClaim(MIB)
    memory.take(claim)
    memory.take(claim)
    memory.take(MemoryClaim(MIB))

    assert memory.allows(claim)
    assert memory.held_bytes == 2 * MIB


def test_a_request_that_never_fits_is_invalid() -> None:
    """The error names the option that allows more."""
    memory = memory_of(10)
    memory.check(MemoryClaim(5 * MIB))

    with pytest.raises(InvalidRequest, match=r"6 MiB .* more than half of 10 MiB \(--max-running-mb\)"):
        memory.check(MemoryClaim(6 * MIB))


def test_who_waits_hears_of_what_is_given_back() -> None:
    """Nobody else does."""
    freed = list[int]()
    memory = PlacedMemory(MIB, lambda: freed.append(memory.held_bytes))
    claim = MemoryClaim(5)
    memory.take(claim)
    claim.release()
    assert not freed

    memory.take(claim)
    assert not memory.allows(MemoryClaim(MIB))
    claim.release()

    assert freed == [0]


def queue_with(workers: CapacityWorkers, mib: int, queue_timeout_s: float = 60.0) -> AdmissionQueue:
    """Return a queue with so much memory for what runs."""
    settings = AdmissionSettings(max_running_bytes=mib * MIB, max_queue=100, queue_timeout_s=queue_timeout_s)
    return AdmissionQueue(workers, settings)


def taking(size_bytes: int, tenant: str = "") -> Placement:
    """Return the placement of a request that takes so much."""
    return Placement(memory=MemoryClaim(size_bytes), tenant=tenant)


async def test_a_request_waits_until_another_gives_back_its_memory() -> None:
    """It is placed without a worker's event."""
    workers = CapacityWorkers(free=10)
    queue = queue_with(workers, 2)
    first = taking(MIB)
    enqueue(queue, "a", first)
    enqueue(queue, "b", taking(MIB))
    enqueue(queue, "c", taking(MIB))
    assert workers.started == ["a", "b"]

    assert first.memory is not None
    first.memory.release()
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert workers.started == ["a", "b", "c"]
    assert not queue.lengths()


async def test_large_requests_that_wait_keep_no_other_waiting() -> None:
    """These go to workers at once, also while a large one of their own tenant was there before."""
    workers = CapacityWorkers(free=10)
    queue = queue_with(workers, 20)
    for number in range(3):
        enqueue(queue, f"large {number}", taking(4 * MIB))
    assert workers.started == ["large 0", "large 1"]

    enqueue(queue, "small", taking(MIB))
    await asyncio.sleep(0)

    assert workers.started[2:] == ["small"]
    assert queue.lengths() == {MODEL: (1, 1)}


async def test_memory_is_shared_fairly_by_tenants() -> None:
    """As workers are: the next is of who had less."""
    workers = CapacityWorkers(free=10)
    queue = queue_with(workers, 8)
    claims = [taking(4 * MIB, "greedy") for _ in range(4)]
    for number, placement in enumerate(claims):
        enqueue(queue, f"greedy {number}", placement)
    enqueue(queue, "other", taking(4 * MIB, "other"))

    assert claims[0].memory is not None
    claims[0].memory.release()
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert workers.started == ["greedy 0", "other"]


async def test_the_further_parts_of_a_request_wait_for_no_memory() -> None:
    """It has what all of them take since the first, so no two requests wait for what the other has."""
    workers = CapacityWorkers(free=1)
    queue = queue_with(workers, 2)
    placement = taking(MIB)
    enqueue(queue, "parts", placement, n=3)
    enqueue(queue, "other", taking(MIB))

    await workers.add_capacity(3)

    assert workers.started == ["parts", "parts", "other"]
    assert queue.placed_memory.held_bytes == 2 * MIB


async def test_what_waits_for_memory_takes_no_workers_place() -> None:
    """Other tenants' sequences are not moved for it, which would make no room."""
    workers = CapacityWorkers(free=10)
    queue = queue_with(workers, 2)
    for number in range(3):
        enqueue(queue, f"{number}", taking(MIB, "t"))

    assert not queue.late(-1.0)


async def test_a_request_that_gets_no_memory_is_told_so() -> None:
    """With what it takes, and which options give more."""
    workers = CapacityWorkers(free=10)
    queue = queue_with(workers, 2, queue_timeout_s=0.01)
    for name in ("a", "b"):
        enqueue(queue, name, taking(MIB))

    _, listener = enqueue(queue, "c", taking(MIB))
    await listener.ended.wait()

    assert isinstance(listener.error, TokenwireError)
    assert listener.error.message == (
        "2 MiB (--max-running-mb) had no room for this request's 1 MiB within 0.01 s (--queue-timeout)."
    )


async def test_a_request_that_never_gets_enough_is_invalid() -> None:
    """It is not queued."""
    queue = queue_with(CapacityWorkers(), 1)

    with pytest.raises(InvalidRequest, match="--max-running-mb"):
        enqueue(queue, "a", taking(MIB))
    assert not queue.lengths()


def test_what_does_not_wait_is_refused_when_there_is_no_room() -> None:
    """One that is larger than half of the memory is let in as one of that size."""
    memory = memory_of(10)
    first = memory.take_now(20 * MIB)
    assert (first.size_bytes, memory.held_bytes) == (5 * MIB, 5 * MIB)

    with pytest.raises(Unavailable, match="--max-running-mb"):
        memory.take_now(2 * MIB)
    first.release()

    assert memory.take_now(2 * MIB).size_bytes == memory.held_bytes == 2 * MIB
