"""The routes of the status page: contents, policy and access."""

import asyncio
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from tests.coordinator.api.applications import client_of, with_api_key
from tests.workers import running_worker, unix_address, until
from tokenwire.coordinator.api.openapi.routes import DOCUMENTATION_PATHS
from tokenwire.coordinator.api.status_page.routes import PAGE_PATHS
from tokenwire.coordinator.app import build_app
from tokenwire.coordinator.fleet.pool import WorkerPool
from tokenwire.coordinator.observability.siblings import Siblings
from tokenwire.coordinator.settings import CoordinatorSettings
from tokenwire.v1 import inference_pb2 as pb

DATA = ("/status.json", "/status/traffic.json")
PAGE = Path(__file__).parents[4] / "coordinator" / "api" / "status_page"


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

        asking = asyncio.create_task(client.post("/v1/completions", json=body))
        # One runs, two are sent ahead, the others wait here.
        await until(lambda: pool.open_slots == 3)
        (model,) = (await own_status(client))["models"]
        asking.cancel()
        await asyncio.wait([asking])

    assert model["waiting_requests"] == model["waiting_sequences"] == 2


async def test_it_has_the_data_of_every_process(tmp_path: Path) -> None:
    """Siblings get the same question; what a sibling responds is passed on as it is."""
    app = build_app(replace(CoordinatorSettings(("127.0.0.1:1",)), siblings_dir=tmp_path))
    sibling = Siblings(tmp_path)
    sibling.provide("status", lambda _: b'{"process": "other"}')
    sibling.provide("traffic", lambda since: json.dumps({"process": "other", "since": since}).encode())
    await sibling.start()
    (tmp_path / f"{os.getpid()}.sock").rename(tmp_path / "other.sock")
    try:
        async with client_of(app) as client:
            status = (await client.get("/status.json")).json()
            traffic = (await client.get("/status/traffic.json?since=9")).json()
    finally:
        await sibling.stop()

    assert status["processes"][0]["workers"][0]["worker"] == "127.0.0.1:1"
    assert status["processes"][1:] == [{"process": "other"}]
    assert traffic["processes"][0]["samples"] == []
    assert traffic["processes"][1:] == [{"process": "other", "since": "9"}]


async def test_its_files_follow_a_strict_policy() -> None:
    """Nothing inline, no other origin, no markup from texts; every file is served."""
    app = build_app(CoordinatorSettings(("127.0.0.1:1",)))
    served = set()
    async with client_of(app) as client:
        for path in PAGE_PATHS | DOCUMENTATION_PATHS - {"/openapi.json"}:
            answer = await client.get(path)
            policy = answer.headers["content-security-policy"]
            assert answer.status_code == 200
            assert policy.startswith("default-src 'none'")
            assert "unsafe" not in policy
            assert "require-trusted-types-for 'script'" in policy
            text = answer.text.removeprefix("/*! https://github.com/leeoniya/uPlot (v1.6.32) */")
            assert not re.search(r"https?://|innerHTML|outerHTML|insertAdjacent|document\.write|style=", text)
            served.add({"/": "index.html", "/docs": "docs.html"}.get(path, path.rpartition("/")[2]))
    assert served == {path.name for path in PAGE.rglob("*") if path.suffix in (".html", ".css", ".js")}


async def test_the_page_needs_no_key_and_its_data_does(tmp_path: Path) -> None:
    """With API keys, the page itself has no data and needs none."""
    async with client_of(build_app(with_api_key(CoordinatorSettings((unix_address(tmp_path),)), tmp_path))) as client:
        for path in PAGE_PATHS:
            assert (await client.get(path)).status_code == 200
        for path in DATA:
            assert (await client.get(path)).status_code == 401
        answer = await client.get("/status.json", headers={"Authorization": "Bearer sesame"})

    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"


async def test_it_can_be_disabled() -> None:
    """Then neither the page nor its data is served."""
    async with client_of(build_app(CoordinatorSettings(("127.0.0.1:1",), status_page=False))) as client:
        for path in (*PAGE_PATHS, *DATA):
            assert (await client.get(path)).status_code == 404
