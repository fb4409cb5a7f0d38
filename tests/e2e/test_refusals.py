"""What a request had that is refused is freed with its answer, and not by a collection of cycles much later."""

import asyncio
import gc
import json
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tests.adversary.hostile_worker import HostileWorker, running_hostile_worker, server_info, tokenizer_of
from tests.coordinator.api.applications import client_of
from tests.coordinator.media.pictures import huge_png, png
from tests.coordinator.media.test_loader import data_url
from tests.workers import running_worker, unix_address, until
from tokenwire.coordinator.app import build_app
from tokenwire.coordinator.media.settings import MediaSettings
from tokenwire.coordinator.settings import CoordinatorSettings
from tokenwire.v1 import inference_pb2 as pb

SIZE = 3 * 2**20
LARGE, LARGER = "x" * SIZE, "x" * (2 * SIZE)
CHATS, COMPLETIONS, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"


class Refused(NamedTuple):
    """A request that is refused."""

    path: str
    body: Any
    status: int = 400
    timeout: str = "60"


def chat_about(*urls: str, **fields: Any) -> dict[str, Any]:
    """Return a chat with pictures."""
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return {"model": "simulated", "messages": [{"role": "user", "content": parts}], "max_tokens": 1, **fields}


def response_about(url: str) -> dict[str, Any]:
    """Return a request of the Responses API with a picture."""
    parts = [{"type": "input_image", "image_url": url}]
    return {"model": "simulated", "input": [{"role": "user", "content": parts}]}


def message_about(data: str) -> dict[str, Any]:
    """Return a request of the Messages API with a picture."""
    source = {"type": "base64", "media_type": "image/png", "data": data}
    content = [{"type": "image", "source": source}]
    return {"model": "simulated", "max_tokens": 1, "messages": [{"role": "user", "content": content}]}


PROMPTS = [[65] * 16_000] * 32
TOO_LARGE = data_url(png() + bytes(2 * SIZE))
REFUSED = {
    "a picture that is too large": Refused(CHATS, chat_about(TOO_LARGE)),
    "one beside another": Refused(CHATS, chat_about(data_url(png()), TOO_LARGE)),
    "one to be streamed": Refused(CHATS, chat_about(TOO_LARGE, stream=True)),
    "one of the Responses API": Refused(RESPONSES, response_about(TOO_LARGE)),
    "one of the Messages API": Refused(MESSAGES, message_about(TOO_LARGE.partition(",")[2])),
    "one to be counted": Refused("/tokenize", {"messages": chat_about(TOO_LARGE)["messages"]}),
    "no base64": Refused(CHATS, chat_about("data:image/png;base64," + "!" * SIZE)),
    "no picture": Refused(CHATS, chat_about(data_url(bytes(SIZE)))),
    "too many pixels": Refused(CHATS, chat_about(data_url(huge_png(50_000, 50_000) + bytes(SIZE)))),
    "a long URL": Refused(CHATS, chat_about("https://example.org/" + LARGE)),
    "a picture that a worker refuses": Refused(CHATS, chat_about(data_url(png() + bytes(SIZE)))),
    "a picture that nobody looks at in time": Refused(CHATS, chat_about(data_url(png() + b"\1" * SIZE)), 504, "0.2"),
    "a long prompt": Refused(COMPLETIONS, {"model": "simulated", "prompt": LARGER}),
    "a prompt of many tokens": Refused(COMPLETIONS, {"model": "simulated", "prompt": "a b " * (SIZE // 4)}),
    "a long chat": Refused(CHATS, {"model": "simulated", "messages": [{"role": "user", "content": LARGER}]}),
    "a prompt to be cut to nothing": Refused(
        COMPLETIONS, {"model": "simulated", "prompt": LARGER, "truncate_prompt_tokens": 10**6}
    ),
    "a prompt of a wrong type": Refused(COMPLETIONS, {"model": "simulated", "prompt": {"text": LARGE}}),
    "a message of a wrong type": Refused(CHATS, {"model": "simulated", "messages": [LARGE]}),
    "an unknown model": Refused(COMPLETIONS, {"model": "unknown", "prompt": LARGE}, 404),
    "a field that is not served": Refused(COMPLETIONS, {"model": "simulated", "prompt": LARGE, "best_of": 2}),
    "parameters beyond their limits": Refused(COMPLETIONS, {"model": "simulated", "prompt": LARGE, "n": 10**6}),
    "a model that does not come in time": Refused(COMPLETIONS, {"model": "awaited", "prompt": LARGE}, 504, "0.1"),
    "a reply that fails": Refused(COMPLETIONS, {"model": "simulated", "prompt": PROMPTS}, 500),
    "a surrogate": Refused(COMPLETIONS, {"model": "simulated", "prompt": LARGE + "\ud800"}),
    "ids beyond the vocabulary": Refused(COMPLETIONS, {"model": "simulated", "prompt": [10**6] * (SIZE // 16)}),
}


class FailingWorker(HostileWorker):
    """Generates nothing, and refuses pictures, or never says what they are."""

    refuses = True

    def answer(self, submit: pb.Submit) -> Iterator[pb.SessionResponse]:
        """End a reply with an error."""
        finishes = [pb.Finish(slot=slot, reason=pb.FINISH_REASON_ERROR) for slot in submit.slots]
        yield pb.SessionResponse(frame=pb.StepFrame(finishes=finishes))

    async def expand(self, request: pb.ExpandRequest) -> pb.ExpandResponse:
        """Refuse, or answer nothing."""
        if self.refuses:
            raise ValueError("I do not see anything")
        await asyncio.Event().wait()
        return pb.ExpandResponse()


@pytest.fixture
async def client(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a coordinator whose worker fails."""
    honest, failing = unix_address(tmp_path, "honest"), unix_address(tmp_path, "failing")
    settings = CoordinatorSettings((failing,), media=MediaSettings(max_bytes=SIZE + 1024), expected_models=("awaited",))
    app = build_app(settings)
    async with running_worker(honest, image_tokens=4):
        worker = FailingWorker(await server_info(honest), await tokenizer_of(honest))
    worker.refuses = "refuses" in request.node.name
    async with running_hostile_worker(worker, failing), client_of(app) as client:
        await until(app.state.pool.is_ready)
        yield client


@pytest.mark.parametrize("name", list(REFUSED))
async def test_nothing_of_a_refused_request_is_kept(client: httpx.AsyncClient, name: str) -> None:
    """The second time, when caches have what they keep; its text would wait for the collector in a cycle of frames."""
    refused = REFUSED[name]
    body = json.dumps(refused.body).encode()
    headers = {"Content-Type": "application/json", "X-Request-Timeout": refused.timeout}

    async def refuse() -> None:
        answer = await client.post(refused.path, content=body, headers=headers, timeout=60)
        assert answer.status_code == refused.status, answer.text

    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        await refuse()
        before, _ = tracemalloc.get_traced_memory()
        await refuse()
        await until(lambda: tracemalloc.get_traced_memory()[0] - before < SIZE // 4)  # threads let go a moment later
    finally:
        tracemalloc.stop()
        gc.enable()
