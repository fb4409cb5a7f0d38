"""POST /pooling and /classify: results of inputs as they are, and as classes."""

import time
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tokenwire.coordinator.api.api_request import RequestHeaders
from tokenwire.coordinator.api.fields.usage import full_usage_object
from tokenwire.coordinator.api.long_response import long_response
from tokenwire.coordinator.api.pooling.collect import pool
from tokenwire.coordinator.api.pooling.embeddings import InputFields
from tokenwire.coordinator.api.pooling.encoding import bytes_per_number, encoded, wire_dtype
from tokenwire.coordinator.api.pooling.fields import EncodingFields, model_of_route
from tokenwire.coordinator.api.router import ApiRouter
from tokenwire.coordinator.generation.model_directory import ModelDirectory
from tokenwire.coordinator.pooling.service import PoolingService
from tokenwire.coordinator.pooling.types import PoolingRequest
from tokenwire.coordinator.types import ServedModel, Usage
from tokenwire.errors import InvalidRequest

_ALL_TASKS = ("embed", "classify", "token_embed", "token_classify")


class ClassifyRequest(InputFields):
    """vLLM's classification request."""

    def to_pooling(self, model: ServedModel, headers: RequestHeaders) -> PoolingRequest:
        """Translate into a PoolingRequest. Raises InvalidRequest."""
        return self.pooling_request("classify-", "classify", model, headers)


class PoolRequest(InputFields, EncodingFields):
    """vLLM's pooling request."""

    task: str | None = None
    dimensions: int | None = None
    data: Any = None

    def to_pooling(self, model: ServedModel, headers: RequestHeaders) -> PoolingRequest:
        """Translate into a PoolingRequest. Raises InvalidRequest."""
        if self.dimensions is not None:
            raise InvalidRequest("dimensions is currently not supported", param="dimensions")
        if self.data is not None or self.task == "plugin":
            raise InvalidRequest("No IOProcessor plugin installed: `data` is not supported.", param="data")
        own = "" if model.pooling is None else model.pooling.task
        if self.task is not None and self.task not in model.tasks:
            supported = ", ".join(map(repr, model.tasks))
            raise InvalidRequest(f"Unsupported task: {self.task!r} Supported tasks: ({supported})", param="task")
        if self.task is not None and self.task != own:
            raise InvalidRequest(
                f"Try switching the model's pooling_task via --pooler-config.task {self.task}.", param="task"
            )
        return self.pooling_request("pooling-", own, model, headers, wire_dtype(self), bytes_per_number(self))


def result_routes(pooling: PoolingService, models: ModelDirectory) -> ApiRouter:
    """Return the routes."""
    router = ApiRouter()

    @router.post("/pooling", PoolRequest)
    async def create_pooling(body: PoolRequest, request: Request) -> Response:
        body.check()
        headers = RequestHeaders.of(request)
        model = await model_of_route(models, body.model, headers.caller, _ALL_TASKS, "Pooling API")
        running, encoding = pool(pooling, body.to_pooling(model, headers), model, request), body.encoding()
        created = int(time.time())
        del body  # it may be large
        results = await running
        shown = {"id": results.request_id, "object": "list", "created": created, "model": model.name, "data": []}
        shown["usage"] = full_usage_object(Usage(results.prompt_tokens))
        return encoded(results, encoding, shown, "pooling", "data")

    @router.post("/classify", ClassifyRequest)
    async def classify(body: ClassifyRequest, request: Request) -> Response:
        body.check()
        headers = RequestHeaders.of(request)
        model = await model_of_route(models, body.model, headers.caller, ("classify",), "Classification API")
        running = pool(pooling, body.to_pooling(model, headers), model, request)
        created = int(time.time())
        del body  # it may be large
        results = await running
        labels = [] if model.pooling is None else list(model.pooling.labels)
        data = (_classified(index, results.vector(index).tolist(), labels) for index in range(len(results.pooled)))
        shown = {"id": results.request_id, "object": "list", "created": created, "model": model.name, "data": data}
        return long_response({**shown, "usage": full_usage_object(Usage(results.prompt_tokens))}, "data")

    return router


def _classified(index: int, chances: list[float], labels: Sequence[str]) -> dict[str, Any]:
    best = max(range(len(chances)), key=chances.__getitem__)
    label = labels[best] if best < len(labels) else None
    return {"index": index, "label": label, "probs": chances, "num_classes": len(chances)}
