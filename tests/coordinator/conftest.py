"""A real Redis for the coordinator's stores, empty at the start of each test."""

from collections.abc import AsyncIterator, Iterator

import pytest
from redis.asyncio import Redis

from tests.ports import free_port
from tests.redis_server import PASSWORD, redis_server


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    """Run a Redis that requires a password."""
    port = free_port()
    with redis_server(port, PASSWORD):
        yield f"redis://127.0.0.1:{port}/0"


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator["Redis"]:
    """Return a client of an empty Redis."""
    async with Redis.from_url(redis_url, password=PASSWORD) as client:
        await client.flushall()
        yield client
