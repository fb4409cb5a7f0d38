"""A client's deadline ends whatever its request waits for before it is submitted, with the error of deadlines."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.adversary.hostile_worker import HostileWorker, running_hostile_worker, server_info, tokenizer_of
from tests.coordinator.api.applications import client_of
from tests.coordinator.media.pictures import png
from tests.coordinator.media.test_loader import data_url
from tests.e2e.test_refusals import chat_about
from tests.workers import running_worker, unix_address, until
from tokenwire.coordinator.app import build_app
from tokenwire.coordinator.fleet.admission.settings import AdmissionSettings
from tokenwire.coordinator.media.settings import MediaSettings
from tokenwire.coordinator.settings import CoordinatorSettings
from tokenwire.v1 import inference_pb2 as pb

NEVER_S = 3_600.0
"""Of every timeout but the client's."""
CHAT = chat_about(data_url(png()))


class SightlessWorker(HostileWorker):
    """Takes a picture, or does not, and never says what it is."""

    takes_pictures = True

    async def put(self, requests: AsyncIterator[pb.PutRequest]) -> pb.PutResponse:
        """Take a picture, or never answer."""
        if not self.takes_pictures:
            await asyncio.Event().wait()
        return await super().put(requests)

    async def expand(self, request: pb.ExpandRequest) -> pb.ExpandResponse:
        """Answer nothing, ever."""
        await asyncio.Event().wait()
        return pb.ExpandResponse()


@pytest.fixture(params=[True, False], ids=["takes pictures", "takes none"])
async def client(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a coordinator whose only worker answers nothing about pictures."""
    honest, silent = unix_address(tmp_path, "honest"), unix_address(tmp_path, "silent")
    settings = CoordinatorSettings(
        (silent,),
        media=MediaSettings(allow_http=True, allowed_networks=("127.0.0.0/8",), fetch_timeout_s=NEVER_S),
        admission=AdmissionSettings(queue_timeout_s=NEVER_S),
    )
    app = build_app(replace(settings, expected_models=("awaited",)))
    async with running_worker(honest, image_tokens=4):
        worker = SightlessWorker(await server_info(honest), await tokenizer_of(honest))
    worker.takes_pictures = request.param
    async with running_hostile_worker(worker, silent), client_of(app) as client:
        await until(app.state.pool.is_ready)
        client.headers["X-Request-Timeout"] = "0.3"
        yield client


async def check_late(client: httpx.AsyncClient, body: dict[str, Any], path: str = "/v1/chat/completions") -> None:
    """Check that a request ends at its deadline."""
    late = await client.post(path, json=body, timeout=60)
    assert (late.status_code, late.json()["error"]["message"]) == (504, "Request timed out after 0.3 s."), path


async def test_a_worker_that_answers_nothing_about_pictures_holds_no_request_beyond_its_deadline(
    client: httpx.AsyncClient,
) -> None:
    """Neither by a picture that it does not take, nor by a prompt that it does not expand, on any route."""
    for body in (CHAT, CHAT | {"stream": True}):
        await check_late(client, body)
    await check_late(client, {"model": "simulated", "messages": CHAT["messages"]}, "/tokenize")


async def test_a_server_of_pictures_that_answers_nothing_holds_no_request_beyond_its_deadline(
    client: httpx.AsyncClient,
) -> None:
    """However long a fetch may take."""

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    silent = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    async with silent:
        await check_late(client, chat_about(f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}/cat.png"))


async def test_a_model_whose_first_worker_starts_holds_no_request_beyond_its_deadline(
    client: httpx.AsyncClient,
) -> None:
    """However long workers may take for that."""
    await check_late(client, {"model": "awaited", "prompt": "Hi"}, "/v1/completions")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_request_that_is_in_time_is_answered(address: str, stream: bool) -> None:
    """A stream is submitted when its handler has returned."""
    app = build_app(CoordinatorSettings((address,)))
    async with running_worker(address), client_of(app) as client:
        await until(app.state.pool.is_ready)
        body = {"prompt": "Hi", "max_tokens": 3, "stream": stream}
        answer = await client.post("/v1/completions", json=body, headers={"X-Request-Timeout": "600"})

    assert answer.status_code == 200
    assert '"finish_reason":"length"' in answer.text
