"""A reply that becomes longer than it claimed takes more memory, or fails."""

import asyncio

import pytest

from tokenwire.coordinator.fleet.placed_memory import MemoryClaim, PlacedMemory
from tokenwire.coordinator.generation.growing_reply import GrowingReply
from tokenwire.coordinator.output.collect import CollectedReply
from tokenwire.coordinator.types import Finish
from tokenwire.errors import Unavailable

MIB = 2**20
TOKENS = 1000


def growing_reply(memory: PlacedMemory, tenant: str = "") -> tuple[GrowingReply, CollectedReply, MemoryClaim]:
    """Return a reply of two choices with memory for so many tokens, of a KiB each."""
    claim, reply = MemoryClaim(TOKENS * 1024, tenant), CollectedReply(2)
    wrapped = GrowingReply(reply, claim, TOKENS, 1024)
    memory.take(claim)
    return wrapped, reply, claim


def bounded_memory(mib: int) -> PlacedMemory:
    """Return memory that nobody waits for."""
    return PlacedMemory(mib * MIB, lambda: None)


async def test_what_was_claimed_is_enough_for_its_tokens() -> None:
    """Of all choices together."""
    memory = bounded_memory(10)
    reply, _, claim = growing_reply(memory)

    reply.delta(0, "x", [1] * 400, None)
    reply.delta(1, "x", [1] * 600, None)

    assert claim.size_bytes == memory.held_bytes == TOKENS * 1024


async def test_further_tokens_claim_more() -> None:
    """A little more than they take, so that not each of them claims some."""
    memory = bounded_memory(10)
    reply, collected, claim = growing_reply(memory)

    for _ in range(1010):
        reply.delta(1, "x", [1], None)
    assert claim.size_bytes == memory.held_bytes == (TOKENS + 1 + 64) * 1024
    reply.delta(0, "x", [1] * 2000, Finish("stop"))
    assert claim.size_bytes >= 3010 * 1024

    assert reply.tokens_of(1) == 1010
    reply.delta(1, "", [], Finish("length"))
    assert [len(choice.token_ids) for choice in await collected.wait()] == [2000, 1010]


async def test_tokens_with_long_texts_claim_more() -> None:
    """Real vocabularies have some of 128 characters: they are kept, joined and rendered."""
    memory = bounded_memory(10)
    reply, _, claim = growing_reply(memory)

    for _ in range(TOKENS // 4):
        reply.delta(0, "=" * 128, [1], None)
    assert claim.size_bytes == TOKENS * 1024
    reply.delta(0, "=" * 128, [1], None)

    assert claim.size_bytes > TOKENS * 1024


async def test_without_memory_it_fails() -> None:
    """As overload, which clients may try again; what comes meanwhile claims nothing."""
    memory = bounded_memory(2)
    reply, collected, _ = growing_reply(memory)

    for _ in range(3):
        reply.delta(0, "x", [1] * TOKENS, None)

    with pytest.raises(Unavailable, match=r"--max-running-mb.*stream") as caught:
        await collected.wait()
    assert caught.value.retry_after_s
    assert memory.held_bytes == 0


async def test_the_newest_of_who_has_most_fails_for_others() -> None:
    """So the oldest end, and one client's long replies cost another's nothing."""
    memory = bounded_memory(8)
    others, greedy = growing_reply(memory, "other"), [growing_reply(memory, "greedy") for _ in range(5)]

    others[0].delta(0, "x", [1] * (TOKENS + 1500), None)

    assert [collected.progress.failure is None for _, collected, _ in [others, *greedy]] == [True] * 5 + [False]
    greedy[0][0].delta(0, "x", [1] * (TOKENS + 500), None)
    assert [collected.progress.failure is None for _, collected, _ in [others, *greedy]] == [True] * 4 + [False] * 2


async def test_a_reply_that_ended_claims_no_more() -> None:
    """Tokens may still arrive for it."""
    memory = bounded_memory(8)
    reply, collected, claim = growing_reply(memory)
    collected.give_up()
    claim.release()

    reply.delta(0, "x", [1] * 2 * TOKENS, None)

    assert memory.held_bytes == 0
    await asyncio.wait_for(collected.wait(), 1)
