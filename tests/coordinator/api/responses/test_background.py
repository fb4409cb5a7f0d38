"""Responses in the background, with a fleet in the test's process; over HTTP in tests/e2e/test_stored_responses.py."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from tests.coordinator.api.applications import all_routes, client_of
from tests.coordinator.fakes import request_context
from tests.workers import running_worker, unix_address, until
from tokenwire.coordinator.api.responses.background import BackgroundResponse, BackgroundResponses, Complete
from tokenwire.coordinator.api.responses.continuation import Continued
from tokenwire.coordinator.api.responses.recorder import Recorder
from tokenwire.coordinator.app import build_app
from tokenwire.coordinator.auth.caller import ANYBODY
from tokenwire.coordinator.generation.context import RequestContext
from tokenwire.coordinator.generation.service import GenerationHandle
from tokenwire.coordinator.output.collect import CollectedChoice, CollectedReply
from tokenwire.coordinator.response_store.settings import ResponseStoreSettings
from tokenwire.coordinator.response_store.store import MemoryResponseStore
from tokenwire.errors import InvalidRequest, Overloaded


def completing(response: Any) -> Complete:
    """Return what makes this response of any reply."""

    async def complete(choices: list[CollectedChoice]) -> Any:
        return response

    return complete


LONG: dict[str, Any] = {"input": "Hi", "max_output_tokens": 5000, "ignore_eos": True, "background": True}
PATH = "/v1/responses"


@asynccontextmanager
async def storing(folder: Path, **settings: Any) -> AsyncIterator[tuple[Starlette, httpx.AsyncClient]]:
    """Run an application that stores responses; yield it and a client."""
    address = unix_address(folder, "worker")
    store = ResponseStoreSettings(enabled=True, **settings)
    app = build_app(replace(all_routes(address), response_store=store))
    async with running_worker(address), client_of(app) as client:
        await until(lambda: bool(app.state.pool.is_ready()))
        yield app, client


async def test_a_request_is_in_flight_until_its_background_ends(tmp_path: Path) -> None:
    """A drain waits for it, and its record has all of its tokens."""
    async with storing(tmp_path) as (app, client):
        started = (await client.post(PATH, json={**LONG, "max_output_tokens": 50})).json()
        assert (app.state.readiness.in_flight, len(app.state.readiness.tasks)) == (1, 1)

        await until(lambda: not app.state.readiness.in_flight)
        ended = (await client.get(f"{PATH}/{started['id']}")).json()
        metrics = (await client.get("/metrics")).text

    assert ended["usage"]["output_tokens"] == 50
    assert not app.state.readiness.tasks
    assert 'tokenwire_completion_tokens_total{model="simulated"} 50.0' in metrics


@pytest.mark.parametrize("stream", [False, True])
async def test_what_runs_at_the_end_of_the_process_has_failed(tmp_path: Path, stream: bool) -> None:
    """The stream of its client says so too."""
    async with storing(tmp_path) as (app, client):
        posted = asyncio.create_task(client.post(PATH, json={**LONG, "stream": stream}))
        await until(lambda: bool(app.state.readiness.tasks))
        if not stream:
            await posted
        (task,) = app.state.readiness.tasks
        app.state.readiness.out_of_time = True
        task.cancel()
        await asyncio.wait([task])
        answer = await posted
        response_id = answer.text.partition('"id":"')[2].partition('"')[0]
        failed = (await client.get(f"{PATH}/{response_id}")).json()

    assert failed["status"] == "failed"
    assert "shut down" in failed["error"]["message"]
    assert ("response.failed" in answer.text) is stream


async def test_one_id_runs_once(tmp_path: Path) -> None:
    """A second request with the id of one that runs, or is stored, is refused; what others continue stays as it is."""
    headers = {"X-Request-Id": "mine"}
    async with storing(tmp_path, max_background=2) as (_, client):
        await client.post(PATH, json=LONG, headers=headers)
        again = await client.post(PATH, json=LONG, headers=headers)
        await client.post(f"{PATH}/resp_mine/cancel")
        later = await client.post(PATH, json=LONG, headers=headers)
        unstored = await client.post(
            PATH, json={"input": "hi", "store": False, "max_output_tokens": 1}, headers=headers
        )
        await client.delete(f"{PATH}/resp_mine")
        anew = await client.post(PATH, json=LONG, headers=headers)
        await client.post(f"{PATH}/resp_mine/cancel")

    assert [(each.status_code, each.json()["error"]["param"]) for each in (again, later)] == [(400, "request_id")] * 2
    assert (unstored.status_code, anew.status_code) == (200, 200)


class RefusingGeneration:
    """Takes a while to refuse a request."""

    def __init__(self) -> None:
        self.refuses = asyncio.Event()

    async def start(self, *_: Any) -> None:
        """Refuse it."""
        await self.refuses.wait()
        raise Overloaded("full")


async def test_one_that_is_about_to_start_has_its_id_but_is_not_found() -> None:
    """It may still be refused, and then there is nothing that a cancel or a delete could wait for."""
    store, generation = MemoryResponseStore(2**20, 60.0), RefusingGeneration()
    settings = ResponseStoreSettings(enabled=True)
    background = BackgroundResponses(generation, store, settings)  # type: ignore[arg-type]
    call: Any = SimpleNamespace(prepared=SimpleNamespace(choices=1))
    recorder = Recorder(store, ANYBODY, "resp_mine", "conversation", True, Continued(), b"[]")

    def run() -> BackgroundResponse:
        response: Any = None
        return BackgroundResponse(call, response, recorder, request_context(), completing({}))

    starting = asyncio.create_task(background.start(run(), streamed=False))
    await asyncio.sleep(0)
    assert background.find(recorder.key) is None
    with pytest.raises(InvalidRequest, match="is running"):
        await background.start(run(), streamed=False)
    generation.refuses.set()
    for again in (starting, background.start(run(), streamed=False)):
        with pytest.raises(Overloaded, match="full"):
            await again


class EndedGeneration:
    """Ends a reply at once."""

    async def start(self, prepared: Any, reply: CollectedReply, context: RequestContext) -> GenerationHandle:
        """End it."""
        reply.give_up()
        return GenerationHandle()


async def test_one_that_cannot_be_written_has_failed() -> None:
    """It frees its place, and a cancel does not wait for ever."""
    store = MemoryResponseStore(2**20, 60.0)
    background = BackgroundResponses(EndedGeneration(), store, ResponseStoreSettings(enabled=True))  # type: ignore[arg-type]
    prepared = SimpleNamespace(choices=1, request=SimpleNamespace(n=1))
    call: Any = SimpleNamespace(prepared=prepared)
    response: Any = SimpleNamespace(
        in_progress=lambda: {"status": "in_progress", "output": []},
        failed=lambda items, error: {"status": "failed", "output": items, "error": error.message},
    )
    recorder = Recorder(store, ANYBODY, "resp_mine", "conversation", True, Continued(), b"[]")
    unwritable = {"status": "completed", "output": [{"text": "\ud800"}]}
    run = BackgroundResponse(call, response, recorder, request_context(), completing(unwritable))

    await background.start(run, streamed=False)
    await asyncio.wait_for(run.ended.wait(), 10)

    assert background.find(recorder.key) is None
    (stored,) = await store.find([recorder.key])
    assert stored is not None
    assert (stored.status, stored.body) == ("failed", run.outcome)
    assert b"Internal server error" in run.outcome
    await background.close()


async def test_nothing_is_left_of_one_that_was_refused(tmp_path: Path) -> None:
    """It takes no place of the limit."""
    async with storing(tmp_path, max_background=1) as (app, client):
        for _ in range(3):
            refused = await client.post(PATH, json={**LONG, "max_output_tokens": 10**8})
            assert refused.status_code == 400
        started = await client.post(PATH, json=LONG)
        full = await client.post(PATH, json=LONG)
        await client.delete(f"{PATH}/{started.json()['id']}")
        await until(lambda: not app.state.readiness.in_flight)

    assert (started.status_code, full.status_code, full.json()["error"]["param"]) == (200, 429, "background")
    assert full.headers["Retry-After"]
    said = "1 responses of this client are running in the background, of at most 1 of 1 (--max-background-responses)."
    assert full.json()["error"]["message"] == said


async def test_a_client_leaves_half_of_what_others_leave(tmp_path: Path) -> None:
    """So there is room for a third one beside two that have what they may."""

    async def started(app: Starlette, host: str) -> int:
        """Start as many as an address may."""
        transport = httpx.ASGITransport(app, client=(host, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            for count in range(9):
                if (await client.post(PATH, json=LONG)).status_code == 429:
                    return count
        raise AssertionError("no bound")

    async with storing(tmp_path, max_background=8) as (app, _):
        assert [await started(app, f"192.0.2.{number}") for number in range(6)] == [4, 2, 1, 1, 0, 0]
