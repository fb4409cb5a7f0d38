"""Limits on what is buffered of bodies."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from tokenwire.coordinator.http.backpressure import BodyBudget, BodyMemory, BodySettings
from tokenwire.errors import Unavailable

KIB = 1024


def budget(kib: int, patience_s: float = 60.0, grace_s: float = 60.0) -> BodyBudget:
    """Return an empty budget."""
    return BodyBudget(BodySettings(max_bodies_bytes=kib * KIB), patience_s, grace_s)


async def begun(coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Run a coroutine to where it waits."""
    task = asyncio.create_task(coroutine)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return task


async def test_reading_pauses_while_other_bodies_take_the_whole_budget() -> None:
    """It goes on in order of arrival as soon as there is space; the last one is behind the large one before it."""
    bodies = budget(200)
    first, second, third = BodyMemory(bodies), BodyMemory(bodies), BodyMemory(bodies)
    await first.add(150 * KIB)
    large, last = await begun(second.add(100 * KIB)), await begun(third.add(70 * KIB))
    assert (large.done(), last.done(), bodies.held_bytes) == (False, False, 150 * KIB)

    first.release()
    await asyncio.gather(large, last)

    assert bodies.held_bytes == 170 * KIB
    second.release()
    third.release()
    third.release()
    assert bodies.held_bytes == 0


async def test_what_a_body_gives_back_is_for_others() -> None:
    """At once; never more than it has."""
    bodies = budget(200)
    first, second = BodyMemory(bodies), BodyMemory(bodies)
    await first.add(150 * KIB)
    waiting = await begun(second.add(100 * KIB))
    assert not waiting.done()
    for _ in range(2):  # the second time it has less
        first.on_taken(40 * KIB)
        await waiting
    assert (first.held_bytes, bodies.held_bytes) == (30 * KIB, 130 * KIB)
    first.release()
    assert bodies.held_bytes == 100 * KIB


async def test_a_body_that_is_read_is_not_the_oldest_any_more() -> None:
    """While it waits for a picture, or a worker: those that are still read would all wait for each other's rest."""
    bodies = budget(200)
    read, first, second = (BodyMemory(bodies) for _ in range(3))
    for each, size in ((read, 20), (first, 50), (second, 50)):
        await each.add(size * KIB)
    await read.begin_turn(100 * KIB)
    rests = [await begun(first.add(70 * KIB)), await begun(second.add(70 * KIB))]
    assert [rest.done() for rest in rests] == [False, False]
    read.end_turn()
    await rests[0]
    first.release()
    await rests[1]


async def test_who_waits_for_too_long_is_rejected_and_lets_others_pass() -> None:
    """With 503 and Retry-After: what it has read so far is given back by its request's end."""
    bodies = budget(200, patience_s=0.01)
    first, second, third = BodyMemory(bodies), BodyMemory(bodies), BodyMemory(bodies)
    await first.add(150 * KIB)
    waiting = await begun(second.add(100 * KIB))

    with pytest.raises(
        Unavailable, match=r"0\.09766 MiB so far, and all may take 0\.1953 MiB .*--max-bodies-mb"
    ) as caught:
        await waiting
    assert caught.value.retry_after_s is not None

    second.release()
    await third.add(50 * KIB)
    assert bodies.held_bytes == 200 * KIB


async def test_a_client_that_leaves_while_it_waits_makes_room_for_the_next() -> None:
    """Its place in the order is free, and nothing is counted for it."""
    bodies = budget(200)
    first, second, third = BodyMemory(bodies), BodyMemory(bodies), BodyMemory(bodies)
    await first.add(120 * KIB)
    large, small = await begun(second.add(100 * KIB)), await begun(third.add(70 * KIB))

    large.cancel()
    await small

    assert bodies.held_bytes == 190 * KIB


async def test_a_body_alone_may_exceed_the_budget() -> None:
    """It would be never read otherwise."""
    bodies = budget(100)
    large = BodyMemory(bodies)

    await large.add(90 * KIB)
    await large.add(90 * KIB)

    assert large.held_bytes == 180 * KIB


async def test_bodies_that_all_wait_for_their_rest_end_one_after_the_other() -> None:
    """The oldest exceeds the budget, and makes room with its end."""
    bodies = budget(400)
    memories = [BodyMemory(bodies) for _ in range(3)]
    for memory in memories:
        await memory.add(100 * KIB)

    rests = [await begun(memory.add(100 * KIB)) for memory in memories]
    assert [rest.done() for rest in rests] == [True, False, False]
    memories[0].release()
    await rests[1]
    memories[1].release()
    await rests[2]

    assert bodies.held_bytes == 200 * KIB


async def test_all_but_the_oldest_leave_it_room() -> None:
    """They take half at most: what it takes beyond the limit, when it is parsed, comes on top."""
    bodies = budget(200)
    oldest, second, third = BodyMemory(bodies), BodyMemory(bodies), BodyMemory(bodies)
    await oldest.add(10 * KIB)
    await second.add(60 * KIB)
    waiting = await begun(third.add(60 * KIB))
    await oldest.add(180 * KIB)
    assert (waiting.done(), bodies.held_bytes) == (False, 250 * KIB)

    oldest.release()
    await waiting

    assert bodies.held_bytes == 120 * KIB


async def test_large_bodies_have_turns_of_their_own() -> None:
    """Whatever else the loop has to do comes between any two of them."""
    bodies, loop = budget(1), asyncio.get_running_loop()
    order: list[str] = []

    async def parse(name: str) -> None:
        async with bodies.turn():
            order.append(name)
            loop.call_soon(order.append, "others")

    await asyncio.gather(*map(parse, "abc"))

    assert order == ["a", "others", "b", "others", "c", "others"]


async def test_a_client_leaves_room_for_the_bodies_of_others() -> None:
    """It waits while others that come later are let in; what is oldest of its own does not count."""
    bodies = budget(1600)
    greedy = [BodyMemory(bodies, share="greedy") for _ in range(4)]
    for memory in greedy[:3]:
        await memory.add(300 * KIB)
    waiting = await begun(greedy[3].add(100 * KIB))

    other = BodyMemory(bodies, share="other")
    await other.add(200 * KIB)
    assert not waiting.done()

    greedy[1].release()
    await waiting
    for memory in (*greedy, other):
        memory.release()
    assert (bodies.held_bytes, dict(bodies._of_share)) == (0, {})


async def receiving(memory: BodyMemory) -> asyncio.Task[None]:
    """Wait for more of a body, which never comes."""
    return await begun(memory.receive(asyncio.get_running_loop().create_future))


async def test_several_clients_together_leave_room_for_one_with_less() -> None:
    """The newest body of the one with most is refused that is still received; what is prepared stays."""
    bodies = budget(1600, grace_s=0.01)
    oldest, first, second, prepared = (BodyMemory(bodies, share=name) for name in ("z", "a", "b", "b"))
    for memory, size in ((oldest, 300), (first, 350), (second, 200), (prepared, 200)):
        await memory.add(size * KIB)
    tasks = [await receiving(memory) for memory in (oldest, first, second)]

    small = BodyMemory(bodies, share="c")
    waiting = await begun(small.add(100 * KIB))
    with pytest.raises(Unavailable, match=r"takes 0\.1953 MiB so far, .*--max-bodies-mb"):
        await tasks[2]
    second.release()
    await waiting

    assert [task.done() for task in tasks] == [False, False, True]
    for task in tasks[:2]:
        task.cancel()


async def test_who_would_have_as_much_takes_nothing_from_others() -> None:
    """Else they would refuse each other's forever."""
    bodies = budget(1600, patience_s=0.1, grace_s=0.01)
    oldest, first, second = (BodyMemory(bodies, share=name) for name in ("a", "b", "c"))
    for memory, size in ((oldest, 100), (first, 400), (second, 300)):
        await memory.add(size * KIB)
    tasks = [await receiving(memory) for memory in (first, second)]

    with pytest.raises(Unavailable):
        await BodyMemory(bodies, share="d").add(400 * KIB)

    assert not any(task.done() for task in tasks)
    for task in tasks:
        task.cancel()


async def test_who_waits_for_memory_makes_room_for_one_with_less() -> None:
    """It is refused at once, and not only after its own patience."""
    bodies = budget(1600, grace_s=0.01)
    oldest, greedy = BodyMemory(bodies, share="a"), BodyMemory(bodies, share="b")
    await oldest.add(300 * KIB)
    others = [BodyMemory(bodies, share="a"), greedy]
    for memory in others:
        await memory.add(400 * KIB)
    rest = await begun(greedy.add(100 * KIB))

    small = await begun(BodyMemory(bodies, share="c").add(100 * KIB))
    with pytest.raises(Unavailable):
        await rest
    greedy.release()

    await small


async def test_who_holds_least_is_let_in_first() -> None:
    """Though others have waited for longer."""
    bodies = budget(1600)
    oldest, greedy = BodyMemory(bodies, share="a"), BodyMemory(bodies, share="b")
    await oldest.add(100 * KIB)
    await greedy.add(500 * KIB)
    more = await begun(BodyMemory(bodies, share="a").add(400 * KIB))
    assert not more.done()

    await BodyMemory(bodies, share="c").add(200 * KIB)

    assert not more.done()
    more.cancel()


async def test_large_requests_are_prepared_in_turns_of_their_clients() -> None:
    """The largest one at a time, another client's before the next one; one that has had its turn gives it back once."""
    bodies = budget(200)
    first, second, other = (BodyMemory(bodies, share=name) for name in ("greedy", "greedy", "other"))
    await first.begin_turn(2 * KIB * KIB)
    waiting = [await begun(each.begin_turn(2 * KIB * KIB)) for each in (second, other)]
    small = BodyMemory(bodies, share="greedy")
    await small.begin_turn(100 * KIB)
    assert not any(each.done() for each in waiting)

    first.end_turn()
    first.release()
    await waiting[1]
    assert not waiting[0].done()
    other.release()
    await waiting[0]


async def test_a_turn_ends_by_itself() -> None:
    """A request that waits for its model to start delays no other for longer than a body waits for memory."""
    bodies = budget(200, patience_s=0.01)
    first, second = BodyMemory(bodies), BodyMemory(bodies)
    await first.begin_turn(2 * KIB * KIB)

    await second.begin_turn(2 * KIB * KIB)

    first.end_turn()
    third = await begun(BodyMemory(bodies).begin_turn(2 * KIB * KIB))
    assert not third.done()  # the second's turn is its own
    second.end_turn()
    await third


async def test_a_client_cannot_take_all_turns() -> None:
    """Some are left for others, however many of its requests wait."""
    bodies = budget(200)
    waiting = [await begun(BodyMemory(bodies, share="greedy").begin_turn(100 * KIB)) for _ in range(20)]
    assert sum(each.done() for each in waiting) == 2

    await BodyMemory(bodies, share="other").begin_turn(100 * KIB)
    for each in waiting:
        each.cancel()
