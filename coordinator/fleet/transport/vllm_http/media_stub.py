"""Calls for media to a plain vLLM server: it has none of them, so they are made of requests to generate."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, cast

from tokenwire.coordinator.fleet.transport.vllm_http.expansions import Expansions, expansion_in
from tokenwire.coordinator.fleet.transport.vllm_http.health import ServerHealth
from tokenwire.coordinator.fleet.transport.vllm_http.http_client import VllmHttpClient
from tokenwire.coordinator.fleet.transport.vllm_http.request import GENERATE, check_media
from tokenwire.coordinator.fleet.transport.vllm_http.server_media import ServerMedia
from tokenwire.coordinator.fleet.transport.vllm_http.unsent_media import UnsentMedia
from tokenwire.errors import MediaMissing, Unavailable
from tokenwire.process.fair_turns import FairTurns
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.v1 import inference_pb2_grpc

_MOST_AT_ONCE = 8
"""Prompts that one server expands: they are ahead of the queue. Tenants take turns."""


class VllmHttpMedia:
    """The calls of the stub."""

    def __init__(self, server: VllmHttpClient, store: UnsentMedia, media: ServerMedia, health: ServerHealth) -> None:
        self._server = server
        self._store = store
        self._media = media
        self._health = health
        self._expansions = Expansions()
        self._turns = FairTurns(_MOST_AT_ONCE, _MOST_AT_ONCE)
        self.model = ""
        """The name that requests have for the model, once it is known."""

    def as_stub(self) -> inference_pb2_grpc.MediaStub:
        """Return this as what other workers have."""
        return cast(inference_pb2_grpc.MediaStub, self)

    async def Put(self, chunks: AsyncIterator[pb.PutRequest], timeout: float) -> pb.PutResponse:
        """Keep an item for the requests that have it."""
        found = [chunk async for chunk in chunks]
        self._store.put(found[0].digest, b"".join(chunk.data for chunk in found))
        return pb.PutResponse()

    async def Expand(self, request: pb.ExpandRequest, timeout: float) -> pb.ExpandResponse:
        """Return a prompt as the server expands it. Raises what the server responds."""
        check_media(request.media)
        if missing := self._media.missing(request.media):
            return pb.ExpandResponse(missing=missing)
        items = tuple(item.digest for item in request.media)
        found = self._expansions.find(request.token_ids, items)
        if found is not None:
            return found
        try:
            async with asyncio.timeout(timeout), self._turns.turn(request.tenant):
                found = await self._ask(request)
        except MediaMissing as error:
            return pb.ExpandResponse(missing=error.missing)
        except TimeoutError as error:
            raise Unavailable(f"The server expanded no prompt within {timeout:g} s.", retry_after_s=1) from error
        except Exception as error:
            raise await self._health.failure(error) or Unavailable("The worker was lost.", retry_after_s=1) from error
        self._expansions.add(request.token_ids, items, found)
        return found

    async def _ask(self, request: pb.ExpandRequest) -> pb.ExpandResponse:
        """Have one token generated: its response has the prompt, which the request itself finds computed."""
        body: dict[str, Any] = {
            "request_id": f"expand-{uuid.uuid4().hex}",
            "model": self.model,
            "token_ids": list(request.token_ids),
            "sampling_params": {"max_tokens": 1, "temperature": 0.0, "detokenize": False},
            "return_token_ids": True,
        }
        if request.HasField("cache_salt"):
            body["cache_salt"] = request.cache_salt
        response = await self._media.send(request.media, partial(self._server.post, GENERATE, body, None))
        return expansion_in(response, len(request.media))
