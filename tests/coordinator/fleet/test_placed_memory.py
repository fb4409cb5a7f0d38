"""Which requests may be placed, by what all of them take; the others wait in the queue as for a worker.

One file, since the order of those that wait follows from what may be placed.
"""

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


def fill(memory: PlacedMemory, tenant: str, size_bytes: int = MIB, weight: int = 1) -> int:
    """Place requests of a tenant as long as that is allowed; return how many."""
    for number in range(1000):
        claim = MemoryClaim(size_bytes, tenant, weight)
        if not memory.allows(claim):
            return number
        memory.take(claim)
    raise AssertionError("there is no end")


@pytest.mark.parametrize(("size_bytes", "most"), [(MIB, 48), (2 * MIB, 12)], ids=["small", "large"])
def test_a_client_leaves_room_to_others(size_bytes: int, most: int) -> None:
    """A quarter if it is alone. The next ones leave some, too, so there is always room for who has nothing."""
    memory = memory_of(64)

    assert fill(memory, "greedy", size_bytes) == most
    assert fill(memory, "second", size_bytes) == most / 4
    assert memory.allows(MemoryClaim(size_bytes, "third"))


def test_room_is_shared_by_weights() -> None:
    """As the queue is."""
    memory = memory_of(70)

    assert fill(memory, "heavy", weight=2) == 60


def test_who_has_nothing_may_take_what_is_left() -> None:
    """A request that is large for the whole memory, too."""
    memory = memory_of(20)
    memory.take(MemoryClaim(10 * MIB, "a"))

    assert not memory.allows(MemoryClaim(MIB + 1, "b"))
    assert memory.allows(MemoryClaim(MIB, "b"))


def growing_claim(size_bytes: int, tenant: str) -> tuple[MemoryClaim, list[Unavailable]]:
    """Return a claim that may grow, and what it was refused with."""
    claim, errors = MemoryClaim(size_bytes, tenant), list[Unavailable]()
    claim.on_refused = errors.append
    return claim, errors


def test_those_that_grow_begin_while_there_is_room_to() -> None:
    """Others would be refused by what these grow by."""
    memory = memory_of(64)
    for _ in range(32):
        claim, _ = growing_claim(MIB, "a")
        assert memory.allows(claim)
        memory.take(claim)

    assert not memory.allows(growing_claim(MIB, "a")[0])
    claim.grow(16 * MIB)
    assert (claim.size_bytes, memory.held_bytes) == (17 * MIB, 48 * MIB)


def test_one_that_cannot_grow_is_refused() -> None:
    """What it had is free for others."""
    memory = memory_of(16)
    claim, errors = growing_claim(MIB, "a")
    memory.take(claim)
    claim.grow(11 * MIB)
    assert not errors

    claim.grow(1)

    assert [error.retry_after_s for error in errors] == [1.0]
    assert (memory.held_bytes, claim.on_refused) == (0, None)
    claim.grow(MIB)
    assert memory.held_bytes == 0


def test_growth_takes_no_more_of_the_large_half_than_there_is() -> None:
    """Small requests have the other one."""
    memory = memory_of(16)
    claim, errors = growing_claim(2 * MIB, "a")
    memory.take(claim)

    claim.grow(4 * MIB)
    assert not errors
    claim.grow(MIB)

    assert errors


def queue_with(workers: CapacityWorkers, mib: int, queue_timeout_s: float = 60.0) -> AdmissionQueue:
    """Return a queue with so much memory for what runs."""
    settings = AdmissionSettings(max_running_bytes=mib * MIB, max_queue=100, queue_timeout_s=queue_timeout_s)
    return AdmissionQueue(workers, settings)


def taking(size_bytes: int, tenant: str = "") -> Placement:
    """Return the placement of a request that takes so much."""
    return Placement(memory=MemoryClaim(size_bytes, tenant), tenant=tenant)


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


@pytest.mark.parametrize("size_bytes", [MIB, 2 * MIB], ids=["small", "large"])
async def test_a_tenant_that_takes_what_it_can_keeps_no_other_waiting(size_bytes: int) -> None:
    """Its requests wait in the queue, and others go past them, also without a worker's event."""
    workers = CapacityWorkers(free=1000)
    queue = queue_with(workers, 64)
    for number in range(60):
        enqueue(queue, f"greedy {number}", taking(size_bytes, "greedy"))
    begun = len(workers.started)
    assert begun < 60

    enqueue(queue, "other", taking(size_bytes, "other"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert workers.started[begun:] == ["other"]


async def test_a_tenant_beyond_its_share_of_memory_goes_after_others() -> None:
    """Though it has had less of the workers' work, and would be next: its requests are short and take much memory."""
    workers = CapacityWorkers()
    queue = queue_with(workers, 16)
    for number in range(4):
        enqueue(queue, f"short {number}", taking(2 * MIB, "short"), tokens=1)
    for number in range(2):
        enqueue(queue, f"long {number}", taking(MIB + 1, "long"), tokens=10_000)

    await workers.add_capacity(10)

    assert sorted(workers.started) == ["long 0", "long 1", "short 0", "short 1"]


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
