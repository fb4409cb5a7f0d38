"""The routes of stored responses: retrieve, also as a stream, delete, cancel, and list the input."""

import json

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tokenwire.coordinator.api.api_request import caller_of, context_of
from tokenwire.coordinator.api.json_text import json_bytes
from tokenwire.coordinator.api.long_response import LongResponse, long_response
from tokenwire.coordinator.api.query_params import flag_of, number_of
from tokenwire.coordinator.api.respond import while_connected
from tokenwire.coordinator.api.responses.background import BackgroundResponses, wait_for_end
from tokenwire.coordinator.api.responses.continuation import DROPPED, conversation_up_to, parsed_items
from tokenwire.coordinator.api.responses.event_log import Log, LogStream
from tokenwire.coordinator.api.responses.input_items import page_of
from tokenwire.coordinator.api.responses.request import check_includable
from tokenwire.coordinator.api.responses.stored_log import OpenLogs, StoredLog
from tokenwire.coordinator.api.router import ApiRouter
from tokenwire.coordinator.fleet.placed_memory import PlacedMemory
from tokenwire.coordinator.generation.context import RequestContext
from tokenwire.coordinator.http.backpressure import SMALL_BYTES
from tokenwire.coordinator.response_store.store import ResponseKey
from tokenwire.coordinator.response_store.stored_response import StoredResponse
from tokenwire.errors import InvalidRequest, NotFound

_PATH = "/v1/responses/{response_id}"
_PARSED_AND_WRITTEN = 2
"""How often a long item is there while it is sent."""
_CANCEL_S = 3.0
"""How long a cancel waits for another process to stop."""


def unstored_routes() -> ApiRouter:
    """Return the routes of a server that stores no responses."""
    router = ApiRouter()

    @router.get(_PATH)
    @router.delete(_PATH)
    @router.get(f"{_PATH}/input_items")
    @router.post(f"{_PATH}/cancel")
    async def find_response(request: Request) -> Response:
        response_id = request.path_params["response_id"]
        raise NotFound(
            f"There is no response {response_id!r}: responses are not stored here, see --enable-responses-store.",
            param="response_id",
        )

    return router


def stored_routes(background: BackgroundResponses, memory: PlacedMemory | None = None) -> ApiRouter:
    """Return the routes of stored responses; `memory` is what large ones take until they are sent."""
    router = ApiRouter()
    responses = StoredResponses(background)

    @router.get(_PATH)
    async def retrieve_response(request: Request) -> Response:
        query = request.query_params
        for name in (*query.getlist("include"), *query.getlist("include[]")):
            check_includable(name)
        if flag_of(query, "stream"):
            connection = context_of(request.scope).connection
            log = await while_connected(connection, responses.log_of(_key(request)))
            after = number_of(query, "starting_after", least=0)
            return LogStream(log, connection, -1 if after is None else after)
        return _whole(memory, context_of(request.scope), await responses.current(_key(request)))

    @router.delete(_PATH)
    async def delete_response(request: Request) -> Response:
        key = _key(request)
        await responses.delete(key)
        return JSONResponse({"id": key[1], "object": "response", "deleted": True})

    @router.get(f"{_PATH}/input_items")
    async def list_input_items(request: Request) -> Response:
        context = context_of(request.scope)
        texts = await responses.input_texts(_key(request))
        _claim(memory, context, _PARSED_AND_WRITTEN * sum(map(len, texts)))  # before any work on them
        page = page_of(await parsed_items(texts, context.body), request.query_params)
        _claim(memory, context, _PARSED_AND_WRITTEN * context.body.held_bytes)
        context.body.release()  # who reads slowly keeps no bodies waiting
        return long_response(page, "data")

    @router.post(f"{_PATH}/cancel")
    async def cancel_response(request: Request) -> Response:
        return _whole(memory, context_of(request.scope), await responses.cancel(_key(request)))

    return router


def _claim(memory: PlacedMemory | None, context: RequestContext, size_bytes: int) -> None:
    """Let a reply take so many bytes until it is sent, in place of an earlier claim. Raises Unavailable."""
    if memory is not None and size_bytes > SMALL_BYTES:
        if context.memory is not None:
            context.memory.release()
        context.memory = memory.take_now(size_bytes, context.caller.share, context.caller.weight)


def _whole(memory: PlacedMemory | None, context: RequestContext, body: bytes) -> Response:
    _claim(memory, context, len(body))
    return LongResponse([body])


class StoredResponses:
    """What clients do with stored responses, and with those that run in the background, here or in another process."""

    def __init__(self, background: BackgroundResponses) -> None:
        self._store = background.store
        self._background = background
        self._logs = OpenLogs()

    async def find(self, key: ResponseKey) -> StoredResponse:
        """Return a stored response. Raises NotFound or Unavailable."""
        (stored,) = await self._store.find([key])
        if stored is None:
            raise NotFound(f"Response with id '{key[1]}' not found. {DROPPED}", param="response_id")
        return stored

    async def current(self, key: ResponseKey) -> bytes:
        """Return the Response object as it is now, as JSON. Raises NotFound or Unavailable."""
        run = self._background.find(key)
        if run is not None:
            return json_bytes(run.current())
        stored = await self.find(key)
        return stored.body if stored.has_ended or await self._store.runs(key) else _lost(stored)

    async def log_of(self, key: ResponseKey) -> Log:
        """Return the events of a response; of one that another process runs, when it has ended.

        Raises NotFound, Unavailable, and InvalidRequest for one that has none.
        """
        run = self._background.find(key)
        log: Log | None = await self._replayed(key) if run is None else run.log
        if log is None:
            raise InvalidRequest(
                "This response cannot be streamed: it was not created with `background` and `stream`, or the server "
                "that ran it was lost.",
                param="stream",
            )
        return log

    async def _replayed(self, key: ResponseKey) -> StoredLog | None:
        stored = await self.find(key)
        if stored.background and not stored.has_ended:
            stored = await wait_for_end(self._store, key, None) or stored
        return self._logs.of(stored)

    async def delete(self, key: ResponseKey) -> None:
        """Delete a response; one that runs is cancelled. Raises NotFound or Unavailable."""
        run = self._background.find(key)
        if run is not None:
            run.cancel()
            await run.ended.wait()
        else:
            await self.find(key)
        await self._store.delete(key)

    async def cancel(self, key: ResponseKey) -> bytes:
        """Cancel a response in the background; return it, as JSON. One that has ended stays as it is.

        Raises NotFound, Unavailable, and InvalidRequest for one that did not run in the background.
        """
        run = self._background.find(key)
        if run is not None:
            run.cancel()
            await run.ended.wait()
            return run.outcome
        stored = await self.find(key)
        if not stored.background:
            raise InvalidRequest("Cannot cancel a synchronous response.", param="response_id")
        if not stored.has_ended:
            await self._store.stop(key)
            await wait_for_end(self._store, key, _CANCEL_S)
            return await self.current(key)
        return stored.body

    async def input_texts(self, key: ResponseKey) -> list[bytes]:
        """Return what has the items of which a response's prompt was made. Raises NotFound or Unavailable."""
        turns, missing = await conversation_up_to(self._store, await self.find(key))
        if missing is not None:
            raise NotFound(
                f"Response '{key[1]}' continues '{missing}', which is not found. {DROPPED}", param="response_id"
            )
        return [text for turn in turns for text in (turn.input, turn.body)][:-1]


def _key(request: Request) -> ResponseKey:
    return caller_of(request).tenant, request.path_params["response_id"]


def _lost(stored: StoredResponse) -> bytes:
    """Return a response that nobody runs any longer, as failed."""
    error = {"code": "server_error", "message": "The server that ran this response was lost."}
    return json_bytes({**json.loads(stored.body), "status": "failed", "error": error})
