"""Plain vLLM servers that pool, as workers of a coordinator: a batch is shared by them, and survives one of them."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import httpx
import pytest

from tests.plain_vllm_server import MODEL, FakeVllmServer, Pooling, fake_vllm_server
from tests.processes import coordinator
from tokenwire.worker.vllm_engine.embedded_model import find_embedding_model

INPUTS = [[1000 + number] * 500 for number in range(140)]
"""More than two pieces of them."""


@pytest.fixture
async def servers() -> AsyncIterator[list[FakeVllmServer]]:
    """Two servers of one model."""
    async with AsyncExitStack() as stack:
        both = [await stack.enter_async_context(fake_vllm_server()) for _ in range(2)]
        for server in both:
            server.pools_for = ("embed", 2)
        yield both


@pytest.fixture
async def client(servers: list[FakeVllmServer], tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a coordinator in front of them."""
    addresses, options = [server.url for server in servers], ("--tokenizer", str(find_embedding_model()))
    with ExitStack() as stack:
        entered = stack.enter_context
        running = coordinator(tmp_path, addresses, *options)
        _, url = await asyncio.to_thread(entered, running)  # the servers have to respond meanwhile
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            yield client


def vectors_of_ids(pooling: Pooling) -> bytes:
    """Return a vector for each input of a request: its first id and its length."""
    return b"".join(struct.pack("<2f", ids[0], len(ids)) for ids in pooling.body["input"])


async def embed_all(client: httpx.AsyncClient) -> list[list[float]]:
    """Return the vectors of all inputs."""
    response = await client.post("/v1/embeddings", json={"model": MODEL, "input": INPUTS})
    assert response.status_code == 200, response.text
    assert response.json()["usage"]["prompt_tokens"] == 500 * len(INPUTS)
    return [each["embedding"] for each in response.json()["data"]]


async def test_a_batch_is_shared_by_all_servers(servers: list[FakeVllmServer], client: httpx.AsyncClient) -> None:
    """In pieces, whose results come in the order of the inputs, whoever is first."""
    embedding = asyncio.create_task(embed_all(client))
    first = [await server.poolings.get() for server in servers]
    for server, pooling in reversed(list(zip(servers, first, strict=True))):
        pooling.respond(vectors_of_ids(pooling))
        server.answers = vectors_of_ids

    assert await embedding == [[ids[0], 500] for ids in INPUTS]


async def test_inputs_of_a_server_that_is_lost_go_to_another(
    servers: list[FakeVllmServer], client: httpx.AsyncClient
) -> None:
    """The client sees nothing of it."""
    embedding = asyncio.create_task(embed_all(client))
    lost, kept = servers
    pooling = await lost.poolings.get()
    kept.answers = vectors_of_ids
    lost.healthy = False
    pooling.break_off()
    while not kept.poolings.empty():
        waiting = kept.poolings.get_nowait()
        waiting.respond(vectors_of_ids(waiting))

    assert await embedding == [[ids[0], 500] for ids in INPUTS]
