"""The state of the fleet on the status page."""

import asyncio
from pathlib import Path
from typing import Any

import httpx

from tests.coordinator.api.applications import client_of
from tests.workers import running_worker, unix_address, until
from tokenwire.coordinator.app import build_app
from tokenwire.coordinator.fleet.pool import WorkerPool
from tokenwire.coordinator.settings import CoordinatorSettings
from tokenwire.v1 import inference_pb2 as pb


async def own_status(client: httpx.AsyncClient) -> dict[str, Any]:
    """Return the snapshot of the only process."""
    (status,) = (await client.get("/status.json")).json()["processes"]
    assert isinstance(status, dict)
    return status


async def test_it_shows_workers_and_models(tmp_path: Path) -> None:
    """Connected workers with their load and tokens, others with the reason."""
    address, missing = unix_address(tmp_path), unix_address(tmp_path, "missing")
    app = build_app(CoordinatorSettings((address, missing)))
    pool: WorkerPool = app.state.pool
    async with running_worker(address), client_of(app) as client:
        await until(lambda: pool.is_ready() and "not connected" not in pool.sessions[1].last_error)
        await client.post("/v1/completions", json={"prompt": "Hi", "max_tokens": 7})

        status = await own_status(client)

        assert status["state"] == "ready"
        (model,) = status["models"]
        assert (model["names"], model["waiting_requests"]) == (["simulated"], 0)
        ready, absent = status["workers"]
        assert (ready["worker"], ready["model"], ready["session"]) == (address, "simulated", "ready")
        assert (ready["tokens"], ready["max_num_seqs"], ready["routable"]) == (7, 256, True)
        assert ready["running"] is not None
        assert (absent["session"], absent["running"], absent["kv_cache_usage"]) == ("connecting", None, None)
        assert absent["reason"]


async def test_unreported_values_are_null(tmp_path: Path) -> None:
    """Plain vLLM servers report neither max_num_seqs nor their load."""
    address = unix_address(tmp_path)
    app = build_app(CoordinatorSettings((address,)))
    pool: WorkerPool = app.state.pool
    async with running_worker(address), client_of(app) as client:
        await until(pool.is_ready)
        pool.sessions[0].model = pb.Model(names=["simulated"])

        (worker,) = (await own_status(client))["workers"]

    assert worker["session"] == "ready"
    assert worker["max_num_seqs"] is worker["running"] is worker["waiting"] is worker["kv_cache_usage"] is None


async def test_it_shows_the_queue(tmp_path: Path) -> None:
    """A request without free capacity is in its model's queue."""
    address = unix_address(tmp_path)
    app = build_app(CoordinatorSettings((address,)))
    pool: WorkerPool = app.state.pool
    async with running_worker(address, max_num_seqs=1), client_of(app) as client:
        await until(pool.is_ready)
        body = {"prompt": ["Hi"] * 5, "max_tokens": 20_000}

        requesting = asyncio.create_task(client.post("/v1/completions", json=body))
        # One runs, two are sent ahead, the others wait here.
        await until(lambda: pool.open_slots == 3)
        (model,) = (await own_status(client))["models"]
        requesting.cancel()
        await asyncio.wait([requesting])

    assert model["waiting_requests"] == model["waiting_sequences"] == 2
