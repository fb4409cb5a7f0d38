"""Bursts begin in parts, in order, and let others have their turns."""

import asyncio

from tests.turns import TurnsOfOthers
from tokenwire.process.pace import Pace

MOST = 3


async def test_few_begin_at_once() -> None:
    """The next one waits for a turn of the event loop, in which as many may begin again."""
    pace = Pace(MOST)
    assert [pace.begin("a") for _ in range(MOST)] == [None] * MOST
    waits = pace.begin("a")
    assert waits is not None
    await waits

    assert [pace.begin("a") for _ in range(MOST - 1)] == [None] * (MOST - 1)


async def test_a_burst_begins_in_order_with_turns_for_others() -> None:
    """What comes later waits for what waits already."""
    pace, began, turns = Pace(MOST), list[int](), TurnsOfOthers()

    async def begin(number: int) -> None:
        if (turn := pace.begin("a")) is not None:
            await turn
        began.append(number)

    async with asyncio.TaskGroup() as tasks:
        for number in range(10 * MOST):
            tasks.create_task(begin(number))
        await asyncio.sleep(0)
        assert began == [*range(MOST)]
        tasks.create_task(begin(10 * MOST))

    assert began == [*range(10 * MOST + 1)]
    assert turns.count > 10


async def test_who_leaves_takes_no_place() -> None:
    """The next ones have it."""
    pace = Pace(1)
    assert pace.begin("a") is None
    gone, waiting = pace.begin("a"), pace.begin("a")
    assert gone is not None
    assert waiting is not None
    gone.cancel()
    await asyncio.sleep(0)

    assert waiting.done()


async def test_tenants_take_turns() -> None:
    """One that begins a single request waits for one of each other tenant's, however many there are."""
    pace = Pace(1)
    burst = [pace.begin("large") for _ in range(10)]
    single = pace.begin("small")
    assert single is not None
    for _ in range(2):
        await asyncio.sleep(0)

    assert single.done()
    assert [each.done() for each in burst[1:] if each is not None].count(True) == 1
