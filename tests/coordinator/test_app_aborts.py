"""Aborts and pauses through the application hold for its own requests when their worker is lost."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.coordinator.api.applications import client_of
from tests.workers import running_worker, unix_address, until
from tokenwire.coordinator.app import build_app
from tokenwire.coordinator.auth.settings import AdminSettings
from tokenwire.coordinator.fleet.pool import WorkerPool
from tokenwire.coordinator.settings import CoordinatorSettings
from tokenwire.worker.engine.interface import PauseMode, Sequence
from tokenwire.worker.simulated_engine.engine import SimulatedEngine
from tokenwire.worker.simulated_engine.settings import SimulationSettings


class Endless(SimulatedEngine):
    """Never reports the end of what it aborts, as if its connection were lost before."""

    async def abort(self, sequences: list[Sequence]) -> None:
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
