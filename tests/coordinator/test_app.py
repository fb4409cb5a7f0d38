"""What holds for all routes of the application, with all options enabled."""

import asyncio
import logging
import subprocess
import sys
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.coordinator.api.applications import client_of
from tests.workers import running_worker, unix_address, until
from tokenwire.coordinator.api.router import ApiRoute
from tokenwire.coordinator.app import build_app, build_core, is_loopback
from tokenwire.coordinator.auth.api_keys import ApiKey, AuthSettings
from tokenwire.coordinator.auth.rate_limit import Limits
from tokenwire.coordinator.auth.settings import AdminSettings
from tokenwire.coordinator.fleet.pool import WorkerPool
from tokenwire.coordinator.output.settings import ApiSettings
from tokenwire.coordinator.settings import CoordinatorSettings
from tokenwire.process.logs import JsonFormatter, TextFormatter
from tokenwire.worker.engine.interface import EngineSequence, PauseMode
from tokenwire.worker.simulated_engine.engine import SimulatedEngine
from tokenwire.worker.simulated_engine.settings import SimulationSettings

EVERYTHING = CoordinatorSettings(
    ("127.0.0.1:1",),
    api=ApiSettings(abort_all=True, render_route=True),
    admin=AdminSettings(rl_routes=True, lora_routes=True),
)
BODY = (
    '{"model": "m", "messages": [{"role": "user", "content": "x"}], "prompt": "x", "abort_all": true, "mode": "keep"}'
)
SIMPLE = [{"Content-Type": kind} for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data")]


_LATE = (
    "fastapi",
    "torch",
    "vllm",
    "transformers",
    "redis",
    "opentelemetry",
    "tokenwire.coordinator.api.openapi.operations",
)


def test_a_start_imports_only_what_every_server_needs() -> None:
    """Clients of stores and collectors, and the description of the API, are imported when first needed."""
    code = f"import sys, tokenwire.coordinator.server; print(*sys.modules.keys() & set({_LATE}))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ran.stdout.strip() == ""


def client_without_workers(settings: CoordinatorSettings) -> httpx.AsyncClient:
    """Return a client of an application without workers."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(build_app(settings)), base_url="http://localhost:8000")


def writes() -> list[tuple[str, str]]:
    """Return all routes that change or create something, by method and path."""
    routes = [route for route in build_app(EVERYTHING).routes if isinstance(route, ApiRoute)]
    return [(method, route.path) for route in routes for method in sorted(route.methods - {"GET", "HEAD", "OPTIONS"})]


@pytest.mark.parametrize("headers", [{}, *SIMPLE], ids=lambda headers: headers.get("Content-Type", "no type"))
async def test_cross_site_requests_have_no_effect(headers: dict[str, str]) -> None:
    """Requests that browsers send for other sites without a preflight are rejected on every route, without a worker."""
    foreign = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", **headers}
    found = writes()
    async with client_without_workers(EVERYTHING) as client:
        imported = [
            client.request(method, path, headers=foreign, content=body) for method, path in found for body in (BODY, "")
        ]
        statuses = [reply.status_code for reply in await asyncio.gather(*imported)]

    assert ("POST", "/pause") in found
    assert ("POST", "/v1/chat/completions") in found
    assert all(400 <= status < 500 for status in statuses), statuses


@pytest.mark.parametrize(
    ("settings", "host", "status"),
    [
        ({}, "localhost:8000", 200),
        ({}, "evil.example:8000", 403),
        ({"host": "::1"}, "evil.example", 403),
        ({"host": "0.0.0.0"}, "llm.example", 200),
        ({"host": "0.0.0.0", "allowed_hosts": ("llm.example",)}, "evil.example", 403),
        ({"allowed_hosts": ("llm.example",)}, "llm.example", 200),
    ],
)
async def test_host_names_are_checked_on_loopback_and_if_configured(
    settings: dict[str, Any], host: str, status: int
) -> None:
    """Elsewhere it is unknown by which names a server is reached."""
    async with client_without_workers(replace(EVERYTHING, **settings)) as client:
        assert (await client.get("/version", headers={"Host": host})).status_code == status


CHAT = "/v1/chat/completions"
SECRET = "the client's own words"
FORGED = "m\n12:00:00 I coordinator: request outcome=ok\r\x1b[2K\u2028"


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        (CHAT, {"model": "m", "messages": SECRET}, {"model": "m", "param": "messages"}),
        (CHAT, {"model": "m", "messages": [{"role": SECRET, "content": SECRET}], "max_tokens": SECRET}, {"model": "m"}),
        ("/v1/completions", {"model": "m", "prompt": SECRET, "best_of": SECRET}, {"model": "m", "param": "best_of"}),
        (
            "/v1/messages",
            {"model": "m", "max_tokens": 1, "messages": [{"role": SECRET, "content": SECRET}]},
            {"model": "m"},
        ),
        ("/pause", {"mode": SECRET}, {"param": "mode"}),
        ("/v1/nothing", {}, {"error": "Not Found"}),
        (CHAT, {"model": FORGED, "messages": "x"}, {"model": FORGED}),
    ],
)
async def test_a_rejected_request_is_logged_in_one_line(
    caplog: pytest.LogCaptureFixture, path: str, body: Any, expected: dict[str, str]
) -> None:
    """With the model and the field, without the client's text or anything that starts a new line."""
    caplog.set_level(logging.INFO)
    async with client_without_workers(EVERYTHING) as client:
        reply = await client.post(path, json=body, headers={"Authorization": f"Bearer {SECRET}"})

    assert 400 <= reply.status_code < 500
    (record,) = [record for record in caplog.records if record.message == "request"]
    fields = record.__dict__["fields"]
    assert fields["status"] == reply.status_code
    assert fields["error"]
    assert fields.items() >= expected.items()
    for shown in (TextFormatter("coordinator").format(record), JsonFormatter("coordinator").format(record)):
        assert shown.isprintable()
        assert SECRET not in shown


@pytest.mark.parametrize(
    ("address", "loopback"),
    [("127.0.0.1", True), ("127.0.1.1", True), ("::1", True), ("0.0.0.0", False), ("::", False), ("10.0.0.7", False)],
)
def test_loopback_addresses_are_detected(address: str, loopback: bool) -> None:
    """As reported by sockets."""
    assert is_loopback(address) is loopback


class Endless(SimulatedEngine):
    """Never reports the end of what it aborts, as if its connection were lost before."""

    async def abort(self, sequences: list[EngineSequence]) -> None:
        """Go on."""

    async def pause(self, mode: PauseMode, clear_cache: bool) -> None:
        """Keep what runs."""
        await super().pause(PauseMode.KEEP, clear_cache)

    async def sleep(self, level: int, mode: PauseMode) -> None:
        """Keep what runs."""
        await super().sleep(level, PauseMode.KEEP)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/abort_requests", {"request_ids": ["generate-tokens-x"]}, 200),
        ("/pause?mode=abort", {}, 502),
        ("/sleep?level=0&mode=abort", {}, 502),
    ],
    ids=["by id", "pause", "sleep"],
)
async def test_an_aborted_request_is_not_resumed(tmp_path: Path, path: str, body: object, status: int) -> None:
    """Its worker accepted the abort, and was lost before the request's end; another worker came later."""
    addresses = [unix_address(tmp_path, name) for name in "ab"]
    app = build_app(CoordinatorSettings(tuple(addresses), admin=AdminSettings(rl_routes=True)))
    pool: WorkerPool = app.state.pool
    generate = {"token_ids": [65], "request_id": "x", "sampling_params": {"max_tokens": 2000}}
    async with client_of(app) as client, AsyncExitStack() as later, asyncio.timeout(20):
        async with running_worker(addresses[0], Endless(SimulationSettings(step_ms=20))) as worker:
            await until(pool.is_ready)
            reply = asyncio.create_task(client.post("/inference/v1/generate", json=generate))
            await until(lambda: worker.server_info().generated_tokens > 1)
            assert (await client.post(path, json=body)).status_code == status  # 502: the other worker is not there yet
            await later.enter_async_context(running_worker(addresses[1]))
            await until(lambda: pool.serves(addresses[1]))
        (choice,) = (await reply).json()["choices"]

    assert choice["finish_reason"] == "abort"
    assert choice["token_ids"]


_STORED_PART = "1 of 4 processes: each has a queue, and limits of bodies and buffers of its own"
_PART = "1 of 4 processes: each has a queue, shares of it, and limits of bodies and buffers of its own"


@pytest.mark.parametrize(
    ("limits", "store", "logged"),
    [
        (
            Limits(max_concurrent=1),
            None,
            [_PART, "limits of API keys: counted by this process alone, 1 of 4; see --limits-store"],
        ),
        (
            Limits(max_concurrent=1),
            "redis://nowhere",
            [_STORED_PART, "limits of API keys: counted by all processes with this store together"],
        ),
        (Limits(), None, [_PART]),
    ],
)
def test_a_process_says_what_it_counts_alone(
    caplog: pytest.LogCaptureFixture, limits: Limits, store: str | None, logged: list[str]
) -> None:
    """The queue always; the limits of keys if there are any, and no store that all processes share."""
    caplog.set_level(logging.INFO)
    auth = AuthSettings(keys=(ApiKey(b"", "tenant", limits),), limits_store=store)
    build_core(replace(EVERYTHING, admin=AdminSettings(), auth=auth, processes=4))

    assert [record.getMessage() for record in caplog.records if "limits" in record.getMessage()] == logged
