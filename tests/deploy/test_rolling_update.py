"""A complete rolling update with real processes: every pod is replaced under load."""

import asyncio
import itertools
import re
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from benchmarks.load import http_request
from tests.deploy.cluster import PodCluster
from tests.kubernetes import fake_kubernetes
from tests.workers import until

CLIENTS = 100
BODY = {"model": "simulated", "prompt": "Once", "max_tokens": 50, "temperature": 0, "stream": True}


class SteadyClient:
    """Keeps its connection as long as the server does, and sends requests continuously."""

    def __init__(self, service: list[str], choose: Callable[[list[str]], str]) -> None:
        self._service = service
        self._choose = choose
        self.replies: list[str] = []
        self.problems: list[str] = []
        self.connections = 0

    async def run(self, over: asyncio.Event) -> None:
        """Send requests until stopped, and read the last reply to its end."""
        while not over.is_set():
            url = self._choose(self._service)
            parts = urlsplit(url)
            try:
                reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=1 << 22)
                self.connections += 1
                await self._converse(url, reader, writer, over)
            except (OSError, asyncio.IncompleteReadError) as error:
                self.problems.append(f"{url}: {error!r}")
            else:
                writer.close()

    async def _converse(
        self, url: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, over: asyncio.Event
    ) -> None:
        kept = True
        while kept and not over.is_set():
            writer.write(http_request(url, "/v1/completions", BODY))
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200"):
                self.problems.append(head.decode())
                return
            reply = await reader.readuntil(b"\r\n0\r\n\r\n")
            self.replies.append("".join(re.findall(r'"text":"((?:[^"\\]|\\.)*)"', reply.decode())))
            if b"data: [DONE]" not in reply or b'"error"' in reply:
                self.problems.append(reply[-300:].decode())
            kept = b"connection: close" not in head


@pytest.mark.long
async def test_a_rolling_update_loses_no_request(tmp_path: Path) -> None:
    """All workers and then all coordinators are replaced under 100 clients: every reply is complete and correct."""
    async with AsyncExitStack() as stack:
        cluster = PodCluster(tmp_path, await stack.enter_async_context(fake_kubernetes()), stack)
        await asyncio.gather(*(cluster.add_worker() for _ in range(3)))
        await asyncio.gather(*(cluster.add_coordinator("--drain-delay", "5") for _ in range(2)))
        over = asyncio.Event()
        turns = itertools.count()
        clients = [SteadyClient(cluster.service, lambda urls: urls[next(turns) % len(urls)]) for _ in range(CLIENTS)]
        running = [asyncio.create_task(client.run(over)) for client in clients]

        async def all_clients_are_served_again() -> None:
            before = [len(client.replies) for client in clients]
            await until(
                lambda: all(len(client.replies) > n for client, n in zip(clients, before, strict=True)), timeout_s=30
            )

        await all_clients_are_served_again()
        first = {pod.name for pod in [*cluster.workers, *cluster.coordinators]}
        for _ in range(3):
            assert await cluster.remove_worker() == 0
            await cluster.add_worker()
        await all_clients_are_served_again()
        assert [client.problems for client in clients if client.problems] == []
        assert {client.connections for client in clients} == {1}
        for _ in range(2):
            await cluster.add_coordinator("--drain-delay", "5")
            assert await cluster.remove_coordinator(news=all_clients_are_served_again()) == 0
        await all_clients_are_served_again()
        over.set()
        await asyncio.gather(*running)

    assert [client.problems for client in clients if client.problems] == []
    counted = Counter(reply for client in clients for reply in client.replies)
    assert len(counted) == 1, counted.most_common(3)
    assert counted.total() >= 6 * CLIENTS
    assert not first & {pod.name for pod in [*cluster.workers, *cluster.coordinators]}
