"""Tenants that share a service: one with a single client beside one that sends all it can."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.ports import free_port
from tests.processes import Service, coordinator, simulated_service, simulated_worker
from tests.redis_server import redis_server
from tests.workers import until

pytestmark = pytest.mark.ci

CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 10}
PLACES = 8
"""In the queue."""
AT_A_TIME = 3
"""Sequences that the worker takes: one runs, two are its lead."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with a short queue and two tenants."""
    folder: Path = tmp_path_factory.mktemp("fairness")
    keys = [{"tenant": tenant, "key": f"{tenant}-key"} for tenant in ("greedy", "small")]
    (folder / "keys.json").write_text(json.dumps(keys))
    options = ["--api-keys-file", str(folder / "keys.json"), "--max-queue", str(PLACES)]
    with simulated_service(
        folder, "--sim-max-num-seqs", "1", "--sim-step-ms", "2", coordinator_options=options
    ) as service:
        yield service


async def send_as(tenant: str, client: httpx.AsyncClient, **fields: Any) -> httpx.Response:
    """Send a request of a tenant."""
    headers = {"Authorization": f"Bearer {tenant}-key"}
    return await client.post(CHAT, json={**BODY, **fields}, headers=headers)


def clients_of(service: Service) -> httpx.AsyncClient:
    """Return a client for any number of connections."""
    limits = httpx.Limits(max_connections=None)
    return httpx.AsyncClient(base_url=service.url, timeout=60, limits=limits)


async def test_one_client_gets_its_replies_beside_forty_of_another_tenant(service: Service) -> None:
    """None of its requests is rejected, though most of the others are."""
    greedy: Counter[int] = Counter()
    small: list[int] = []
    async with clients_of(service) as client, clients_of(service) as own, asyncio.TaskGroup() as clients:

        async def repeat() -> None:
            while len(small) < 9:
                greedy[(await send_as("greedy", client)).status_code] += 1

        for _ in range(40):
            clients.create_task(repeat())
        await until(lambda: greedy[429] > 0)
        for _ in range(9):
            small.append((await send_as("small", own)).status_code)

    assert small == [200] * 9
    assert greedy[200] >= 9


async def test_a_request_of_many_choices_runs_beside_those_of_another_tenant(service: Service) -> None:
    """It never takes more places than the worker has, and what it keeps waiting is its own tenant's."""
    choices = 60
    async with clients_of(service) as client, clients_of(service) as own:
        many = asyncio.create_task(send_as("greedy", client, n=choices, temperature=1, seed=7))
        await until(lambda: service.server_info().open_slots == AT_A_TIME)
        answers = [await send_as("small", own) for _ in range(5)]
        assert not many.done()
        most = service.server_info().open_slots
        reply = await many

    assert [answer.status_code for answer in answers] == [200] * 5
    assert most <= AT_A_TIME
    assert reply.status_code == 200, reply.text
    assert [choice["finish_reason"] for choice in reply.json()["choices"]] == ["length"] * choices


async def test_a_tenant_that_came_first_and_waits_its_turn_keeps_nobody_out(service: Service) -> None:
    """Its newest request is rejected for each of the other tenant's, up to its share, with a time to try again."""
    async with clients_of(service) as client:
        running = [asyncio.create_task(send_as("greedy", client, max_tokens=20_000)) for _ in range(AT_A_TIME)]
        await asyncio.to_thread(service.wait_slots, AT_A_TIME)
        waiting = [asyncio.create_task(send_as("greedy", client)) for _ in range(PLACES + 1)]
        await until(lambda: any(each.done() for each in waiting))
        late = [asyncio.create_task(send_as("small", client)) for _ in range(PLACES)]
        await until(lambda: sum(each.done() for each in [*waiting, *late]) == 1 + PLACES)
        for each in running:
            each.cancel()
        greedy, small = await asyncio.gather(*waiting), await asyncio.gather(*late)

    assert Counter(answer.status_code for answer in greedy) == {200: PLACES // 2, 429: PLACES // 2 + 1}
    assert Counter(answer.status_code for answer in small) == {200: PLACES // 2, 429: PLACES // 2}
    rejected = [answer for answer in [*greedy, *small] if answer.status_code == 429]
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in rejected)


async def test_places_are_taken_back_for_a_tenant_that_waits(tmp_path: Path) -> None:
    """One that fills the worker with long replies gives a place up, and gets each of them whole all the same."""
    keys = [{"tenant": tenant, "key": f"{tenant}-key"} for tenant in ("greedy", "small")]
    (tmp_path / "keys.json").write_text(json.dumps(keys))
    options = ["--api-keys-file", str(tmp_path / "keys.json"), "--preempt-after", "0.5"]
    engine = ("--sim-max-num-seqs", "4", "--sim-step-ms", "5")
    long = {"max_tokens": 700, "temperature": 0}
    with simulated_service(tmp_path, *engine, coordinator_options=options) as service:
        async with clients_of(service) as client, clients_of(service) as own:
            many = [asyncio.create_task(send_as("greedy", client, **long)) for _ in range(6)]
            await until(lambda: service.server_info().open_slots == 6)  # four run, two are the worker's lead
            reply = await send_as("small", own)
            ended = [each.done() for each in many]
            replies = [await each for each in many]
            again = await send_as("greedy", client, **long)

    assert (reply.status_code, ended) == (200, [False] * 6)
    assert {each.json()["choices"][0]["message"]["content"] for each in [*replies, again]} == {
        again.json()["choices"][0]["message"]["content"]
    }
    assert any("x-tokenwire-resumed" in each.headers or each.json()["choices"][0].get("resumed") for each in replies)


@pytest.mark.parametrize("pools", [False, True])
async def test_the_prompts_of_one_tenant_do_not_wait_for_all_of_anothers(tmp_path: Path, pools: bool) -> None:
    """Of twenty, which take a minute together, it sends as many as a tenant may have at a worker."""
    keys = [{"tenant": tenant, "key": f"{tenant}-key"} for tenant in ("greedy", "small")]
    (tmp_path / "keys.json").write_text(json.dumps(keys))
    options = ["--api-keys-file", str(tmp_path / "keys.json")]
    engine = ["--sim-step-ms", "10", "--sim-prefill-rate", "10000", "--sim-max-model-len", "32768"]
    path, field = ("/v1/embeddings", "input") if pools else ("/v1/completions", "prompt")
    prompts = [[10 + number] * 30_000 for number in range(20)]
    engine += ["--sim-embedding-width", "8"] if pools else []

    async def send(tenant: str, client: httpx.AsyncClient, value: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {tenant}-key"}
        return await client.post(path, json={"model": "simulated", field: value}, headers=headers)

    with simulated_service(tmp_path, *engine, coordinator_options=options) as service:
        async with clients_of(service) as client, clients_of(service) as own:
            many = asyncio.create_task(send("greedy", client, prompts))
            await until(lambda: service.server_info().open_slots > 0)
            reply = await send("small", own, "hi")
            open_slots, has_ended = service.server_info().open_slots, many.done()
            many.cancel()

    assert (reply.status_code, has_ended) == (200, False)
    assert open_slots <= 3


async def test_a_place_is_left_by_replies_that_cannot_be_taken_back(tmp_path: Path) -> None:
    """A request with choices for the whole worker, which would have to be replayed, leaves one for another tenant."""
    keys = [{"tenant": tenant, "key": f"{tenant}-key"} for tenant in ("greedy", "small")]
    (tmp_path / "keys.json").write_text(json.dumps(keys))
    options = ["--api-keys-file", str(tmp_path / "keys.json")]
    engine = ("--sim-max-num-seqs", "4", "--sim-step-ms", "5")
    penalized = {"max_tokens": 600, "temperature": 1, "presence_penalty": 1e-9, "n": 8}
    with simulated_service(tmp_path, *engine, coordinator_options=options) as service:
        async with clients_of(service) as client, clients_of(service) as own:
            greedy = asyncio.create_task(send_as("greedy", client, **penalized))
            await until(lambda: service.server_info().open_slots == 3)
            reply = await send_as("small", own)
            has_ended = greedy.done()
            choices = (await greedy).json()["choices"]

    assert (reply.status_code, has_ended) == (200, False)
    assert [choice["finish_reason"] for choice in choices] == ["length"] * 8


@pytest.mark.npm
async def test_tenants_of_two_coordinators_get_shares_of_the_same_workers(tmp_path: Path) -> None:
    """By weight, with a store: without one, each coordinator would get about as much, whoever waits there."""
    weights = {"greedy": 1, "small": 3}
    keys = [{"tenant": tenant, "key": f"{tenant}-key", "weight": weight} for tenant, weight in weights.items()]
    (tmp_path / "keys.json").write_text(json.dumps(keys))
    port = free_port()
    options = ("--api-keys-file", str(tmp_path / "keys.json"), "--limits-store", f"redis://127.0.0.1:{port}")
    served: Counter[str] = Counter()
    enough = asyncio.Event()
    with ExitStack() as stack:
        stack.enter_context(redis_server(port))
        _, worker = stack.enter_context(simulated_worker(tmp_path, "--sim-max-num-seqs", "6", "--sim-step-ms", "5"))
        urls = {}
        for tenant in ("greedy", "small"):
            (folder := tmp_path / tenant).mkdir()
            _, urls[tenant] = stack.enter_context(coordinator(folder, [worker], *options, "--max-queue", "100"))

        async def repeat(tenant: str, max_tokens: int) -> None:
            async with httpx.AsyncClient(base_url=urls[tenant], timeout=60) as client:
                while not enough.is_set():
                    reply = await send_as(tenant, client, max_tokens=max_tokens)
                    assert reply.status_code == 200, reply.text
                    served[tenant] += reply.json()["usage"]["completion_tokens"]

        async with asyncio.TaskGroup() as clients:
            for _ in range(40):
                clients.create_task(repeat("greedy", 100))
            await until(lambda: served["greedy"] >= 1000)  # the workers are full, and others wait for them
            for _ in range(20):
                clients.create_task(repeat("small", 50))
            await until(lambda: served["small"] >= 500)  # both wait now
            served.clear()
            await until(lambda: served.total() >= 10_000, timeout_s=60)
            share = served["small"] / served.total()
            enough.set()

    assert 0.6 < share < 0.9
