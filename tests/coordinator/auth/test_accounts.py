"""Accounts of keys that processes share, with a store in memory."""

import pytest

from tokenwire.coordinator.auth.accounts import Accounts, open_accounts
from tokenwire.coordinator.auth.api_keys import ApiKey, AuthSettings
from tokenwire.coordinator.auth.limit_store import Lease, SharedUsage
from tokenwire.coordinator.auth.rate_limit import Account, Limits
from tokenwire.errors import Overloaded


class FakeLimitStore:
    """Counts without time; it can be made to fail."""

    def __init__(self) -> None:
        self.failures = 0
        self.failing = False
        self.calls = 0
        self.running: set[Lease] = set()
        self.requests = 0
        self.tokens = 0
        self.closed = False

    async def enter(self, key: bytes, limits: Limits) -> tuple[Lease, SharedUsage | None]:
        """Count a request."""
        self.calls += 1
        lease = b"%d" % self.calls
        if self.failing:
            return lease, None
        if limits.max_concurrent is not None and len(self.running) >= limits.max_concurrent:
            return lease, SharedUsage("concurrent", 0, 0)
        if limits.requests_per_minute is not None and self.requests >= limits.requests_per_minute:
            return lease, SharedUsage("requests", 0, 0)
        self.requests += 1
        self.running.add(lease)
        return lease, SharedUsage("", (limits.requests_per_minute or 0) - self.requests, 0)

    def leave(self, key: bytes, lease: Lease) -> None:
        """End a request."""
        self.running.discard(lease)

    async def take(self, key: bytes, limits: Limits, tokens: int) -> SharedUsage | None:
        """Take tokens."""
        self.calls += 1
        if self.failing:
            return None
        left = (limits.tokens_per_minute or 0) - self.tokens
        if left < tokens:
            return SharedUsage("tokens", 0, left)
        self.tokens += tokens
        return SharedUsage("", 0, left - tokens)

    def give_back(self, key: bytes, limits: Limits, tokens: int) -> None:
        """Give tokens back."""
        self.tokens -= tokens

    async def close(self) -> None:
        """Record."""
        self.closed = True


def shared(store: FakeLimitStore, **limits: int) -> tuple[Account, Account]:
    """Return the account of one key in two processes."""
    key = ApiKey(b"digest", "t", Limits(**limits))
    return Accounts(store).of(key), Accounts(store).of(key)


def test_each_key_has_one_account_until_its_limits_change() -> None:
    """What it has used stays; without limits there would be none."""
    accounts = Accounts()
    first = accounts.of(ApiKey(b"digest", "t", Limits(max_concurrent=1)))

    assert accounts.of(ApiKey(b"digest", "t", Limits(max_concurrent=1))) is first
    assert accounts.of(ApiKey(b"other", "t", Limits(max_concurrent=1))) is not first
    assert accounts.of(ApiKey(b"digest", "t", Limits(max_concurrent=2))) is not first


async def test_concurrent_requests_of_all_processes_count() -> None:
    """Until they end, in whichever process."""
    one, other = shared(FakeLimitStore(), max_concurrent=1)
    leave = await one.enter()
    with pytest.raises(Overloaded, match="t: 1 requests at a time"):
        await other.enter()

    leave()
    (await other.enter())()


async def test_requests_of_all_processes_count() -> None:
    """A process whose own requests are few is told, and so is the client."""
    one, other = shared(FakeLimitStore(), requests_per_minute=2)
    await one.enter()
    await one.enter()
    with pytest.raises(Overloaded, match="t: 2 requests per minute") as caught:
        await other.enter()
    assert caught.value.retry_after_s is not None
    assert 20 <= caught.value.retry_after_s <= 30
    assert other.buckets()["requests"].available == 0


async def test_tokens_of_all_processes_count() -> None:
    """Reserved by one they are missing to the others, until they are given back, once."""
    store = FakeLimitStore()
    one, other = shared(store, tokens_per_minute=100)
    reservation = await one.reserve(70)
    with pytest.raises(
        Overloaded,
        match=r"t: 100 tokens per minute \(.*\)\. The request may use 40, and 30 are left",
    ) as caught:
        await other.reserve(40)
    assert caught.value.retry_after_s is not None
    assert 5 <= caught.value.retry_after_s <= 6
    assert other.buckets()["tokens"].available == 30

    for _ in range(2):
        reservation.settle(10)
    assert (store.tokens, one.buckets()["tokens"].available) == (10, 90)
    await other.reserve(40)


async def test_what_one_process_refuses_is_not_asked_for() -> None:
    """Nor does it count anywhere; what the store refuses does not count in the process either."""
    store = FakeLimitStore()
    one, other = shared(store, max_concurrent=1, requests_per_minute=10)
    await one.enter()
    with pytest.raises(Overloaded):
        await one.enter()
    assert store.calls == 1

    for _ in range(20):
        with pytest.raises(Overloaded, match="1 requests at a time"):
            await other.enter()
    assert store.requests == 1


async def test_a_key_with_tokens_only_asks_once() -> None:
    """A request has nothing else to count when it arrives."""
    store = FakeLimitStore()
    account, _ = shared(store, tokens_per_minute=100)
    leave = await account.enter()
    await account.reserve(50)
    leave()
    assert store.calls == 1


async def test_while_the_store_fails_each_process_has_its_own_limits() -> None:
    """Nobody is locked out, no process lets in more than the whole limit, and the store is given nothing back."""
    store = FakeLimitStore()
    store.failing = True
    one, other = shared(store, max_concurrent=1, requests_per_minute=5, tokens_per_minute=100)
    for account in (one, other):
        leave = await account.enter()
        (await account.reserve(100)).settle(40)
        with pytest.raises(Overloaded, match="1 requests at a time"):
            await account.enter()
        with pytest.raises(Overloaded, match="The request may use 70"):
            await account.reserve(70)
        leave()
    assert store.tokens == 0


async def test_the_store_is_closed() -> None:
    """With the accounts; without a store there is nothing to close."""
    store = FakeLimitStore()
    await Accounts(store).close()
    assert store.closed

    accounts = open_accounts(AuthSettings())
    assert accounts.store is None
    await accounts.close()


async def test_accounts_of_keys_that_are_gone_are_forgotten() -> None:
    """Not those that are in use, or have used something of their limits."""
    accounts = Accounts()
    limits = Limits(max_concurrent=1, requests_per_minute=5)
    running = accounts.of(ApiKey(b"running", "t", Limits(max_concurrent=1)))
    await running.enter()
    used = accounts.of(ApiKey(b"used", "t", limits))
    (await used.enter())()
    for number in range(1000):
        accounts.of(ApiKey(b"%d" % number, "t", limits))

    assert len(accounts._accounts) < 100
    assert accounts.of(ApiKey(b"running", "t", Limits(max_concurrent=1))) is running
    assert accounts.of(ApiKey(b"used", "t", limits)) is used
