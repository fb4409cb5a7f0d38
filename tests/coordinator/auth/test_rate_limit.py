"""Rate limits of keys, with a fake clock."""

import pytest

from tests.clock import Clock
from tokenwire.coordinator.auth.rate_limit import Account, Limits
from tokenwire.errors import Overloaded


async def test_concurrent_requests() -> None:
    """One above the limit is rejected until another one has ended."""
    account = Account("t", Limits(max_concurrent=2))
    leave = await account.enter()
    await account.enter()
    with pytest.raises(Overloaded, match=r"t: 2 requests at a time \(`max_concurrent` in --api-keys-file\)"):
        await account.enter()

    leave()
    await account.enter()


async def test_requests_per_minute() -> None:
    """A minute's requests may come at once; then the bucket refills, and the error has the wait."""
    clock = Clock()
    account = Account("t", Limits(requests_per_minute=6), clock)
    for _ in range(6):
        await account.enter()
    with pytest.raises(Overloaded, match=r"6 .* \(`requests_per_minute` in --api-keys-file\)") as caught:
        await account.enter()
    assert caught.value.retry_after_s == 10

    clock.now += 10
    await account.enter()
    (bucket,) = account.buckets().values()
    assert (bucket.limit, bucket.available, bucket.wait_s(6)) == (6, 0, 60)


async def test_reserved_tokens() -> None:
    """What a request may use is taken before it runs: one for which not enough is left is rejected, with the wait."""
    clock = Clock()
    account = Account("t", Limits(tokens_per_minute=600), clock)
    await account.enter()
    await account.reserve(450)
    with pytest.raises(
        Overloaded,
        match=r"t: 600 tokens per minute \(.*\)\. The request may use 200, and 150 are left",
    ) as caught:
        await account.reserve(200)
    # 50 more, at ten a second.
    assert caught.value.retry_after_s == 5

    clock.now += 5
    await account.reserve(200)
    with pytest.raises(Overloaded, match="t: 600 tokens per minute"):
        await account.enter()


async def test_a_request_may_reserve_all_tokens_of_a_minute() -> None:
    """It waits until all are there."""
    clock = Clock()
    account = Account("t", Limits(tokens_per_minute=600), clock)
    (await account.reserve(600)).settle(1)
    with pytest.raises(Overloaded):
        await account.reserve(600)

    clock.now += 0.1
    await account.reserve(600)


async def test_unused_tokens_are_given_back_once() -> None:
    """However often a request ends, and never beyond the limit."""
    clock = Clock()
    account = Account("t", Limits(tokens_per_minute=600), clock)
    first, second = await account.reserve(300), await account.reserve(200)
    for _ in range(2):
        first.settle(100)
    assert account.buckets()["tokens"].available == 300

    clock.now += 60
    second.settle(0)
    assert account.buckets()["tokens"].available == 600


async def test_tokens_beyond_the_reservation_are_taken_too() -> None:
    """The bucket is overdrawn, and refills for longer."""
    clock = Clock()
    account = Account("t", Limits(tokens_per_minute=600), clock)
    (await account.reserve(100)).settle(700)
    with pytest.raises(Overloaded, match="600 tokens per minute") as caught:
        await account.enter()
    # 100 too many, and one to go on with, at ten a second.
    assert caught.value.retry_after_s == 11

    clock.now += 11
    await account.enter()
    clock.now += 1000
    assert account.buckets()["tokens"].available == 600
