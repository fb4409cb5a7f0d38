"""The routes of models that pool, of which each has its own tests: what they have in common."""

import asyncio
import gc
import json
from typing import Any

import pytest

from tests.coordinator.fakes import request_context
from tests.coordinator.generation.fakes import FakeFleet
from tests.coordinator.pooling.embedding import embedding_model, pooled_message
from tests.workers import until
from tokenwire.coordinator.api.pooling.routes import pooling_routes
from tokenwire.coordinator.generation.context import CONTEXT
from tokenwire.coordinator.http.backpressure import SMALL_BYTES
from tokenwire.coordinator.output.settings import ApiSettings
from tokenwire.coordinator.parsing.request_model import RequestModel
from tokenwire.coordinator.pooling.service import PoolingService
from tokenwire.coordinator.types import ServedModel
from tokenwire.v1 import inference_pb2 as pb

BODIES: dict[str, dict[str, Any]] = {
    "/v1/embeddings": {"input": ["one two", "two"]},
    "/v2/embed": {"texts": ["one two", "two"]},
    "/score": {"queries": "one two", "documents": "two"},
    "/rerank": {"query": "one two", "documents": ["two"]},
    "/pooling": {"input": ["one two", "two"]},
    "/classify": {"input": ["one two", "two"]},
}


class OneModel:
    """A directory of one model."""

    def __init__(self, model: ServedModel) -> None:
        self._model = model

    async def resolve(self, name: str | None, caller: object, suits: object) -> ServedModel:
        """Return it."""
        return self._model


def bodies() -> list[object]:
    """Return all bodies of requests that are kept."""
    return [each for each in gc.get_objects() if issubclass(type(each), RequestModel) and hasattr(each, "model")]


@pytest.mark.parametrize("path", BODIES)
async def test_bodies_are_not_kept_while_inputs_are_pooled(path: str) -> None:
    """They may be much larger than their inputs; and what they took of --max-bodies-mb is given back."""
    fleet, sent = FakeFleet(), list[bytes]()
    model = embedding_model(task="classify" if path == "/classify" else "embed")
    router = pooling_routes(PoolingService(fleet, ApiSettings()), OneModel(model))  # type: ignore[arg-type]
    (route,) = (each for each in router.routes if each.path == path)
    body = json.dumps(BODIES[path]).encode()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))

    context = request_context()
    context.headers = {b"content-type": b"application/json"}
    context.connection._receive = asyncio.Event().wait  # type: ignore[attr-defined]
    scope = {"type": "http", "method": "POST", "path": path, "headers": [], CONTEXT: context}
    await context.body.add(SMALL_BYTES)
    before = bodies()
    serving = asyncio.ensure_future(route.app(scope, receive, send))
    await until(lambda: bool(fleet.parts))
    assert bodies() == before
    await until(lambda: context.body.budget.held_bytes == 0)

    for listener in fleet.parts[0].listeners:
        listener.step([], pb.Finish(reason=pb.FINISH_REASON_STOP, pooled=pooled_message([0.5, 0.5])))
    await serving
    assert json.loads(b"".join(sent))
