"""Rate limits of keys, with a fake clock."""

import pytest

from tests.clock import Clock
from tokenwire.coordinator.auth.rate_limit import Account, Limits
from tokenwire.errors import Overloaded


def test_concurrent_requests() -> None:
    """One above the limit is rejected until another one has ended."""
    account = Account("t", Limits(max_concurrent=2))
    account.enter()
    account.enter()
    with pytest.raises(Overloaded, match="t: 2 requests at a time"):
        account.enter()

    account.leave()
    account.enter()


def test_requests_per_minute() -> None:
    """A minute's requests may come at once; then the bucket refills, and the error has the wait."""
    clock = Clock()
    account = Account("t", Limits(requests_per_minute=6), clock)
    for _ in range(6):
        account.enter()
    with pytest.raises(Overloaded, match="6 requests per minute") as caught:
        account.enter()
    assert caught.value.retry_after_s == 10

    clock.now += 10
    account.enter()
    (bucket,) = account.buckets().values()
    assert (bucket.limit, bucket.available, bucket.wait_s(6)) == (6, 0, 60)


def test_tokens_per_minute() -> None:
    """The cost of a reply is known at its end: an overdrawn bucket refills for longer."""
    clock = Clock()
    account = Account("t", Limits(tokens_per_minute=600), clock)
    account.enter()
    account.charge(700)
    with pytest.raises(Overloaded, match="600 tokens per minute") as caught:
        account.enter()
    # 100 too many, and one to go on with, at ten a second.
    assert caught.value.retry_after_s == 11

    clock.now += 11
    account.enter()
    clock.now += 1000
    assert account.buckets()["tokens"].available == 600
