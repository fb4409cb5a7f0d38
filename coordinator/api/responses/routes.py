"""POST /v1/responses: full, streamed, or in the background; stored if there is a store and the client wants it.

And the routes beside it: compaction, and those of stored responses.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tokenwire.coordinator.api.api_request import RequestHeaders, context_of
from tokenwire.coordinator.api.fields.left_out import LeftOutTools
from tokenwire.coordinator.api.json_pieces import in_turns
from tokenwire.coordinator.api.long_response import LongResponse
from tokenwire.coordinator.api.message_parts import PartStream, abort_error, full_parts
from tokenwire.coordinator.api.openai.chat import ChatCall, ChatService, parse_choices
from tokenwire.coordinator.api.responses.background import BackgroundResponse, BackgroundResponses
from tokenwire.coordinator.api.responses.compaction import CompactionRequest, Compactions
from tokenwire.coordinator.api.responses.compaction_trigger import (
    SummaryEvents,
    is_triggered,
    summarized,
    summary_request,
)
from tokenwire.coordinator.api.responses.continuation import Continued, check_new, continue_after
from tokenwire.coordinator.api.responses.event_log import LogStream
from tokenwire.coordinator.api.responses.events import ResponseEvents
from tokenwire.coordinator.api.responses.items import messages_of
from tokenwire.coordinator.api.responses.recorder import Recorder
from tokenwire.coordinator.api.responses.request import LOGPROBS, ResponsesRequest, responses_translator
from tokenwire.coordinator.api.responses.response import (
    ResponseObject,
    closed_item,
    item_id,
    long_item,
    response_pieces,
    status_of,
)
from tokenwire.coordinator.api.responses.stored_routes import stored_routes, unstored_routes
from tokenwire.coordinator.api.router import ApiRouter
from tokenwire.coordinator.fleet.placed_memory import PlacedMemory
from tokenwire.coordinator.output.collect import CollectedChoice
from tokenwire.errors import InvalidRequest

_PREFIX = "resp_"
"""Of the ids of responses."""
_TIMES_KEPT = 4
"""How often what a response echoes is there while it is written: of the request, as JSON, and as parts of events."""
UNENFORCED = "X-Tokenwire-Grammar-Unenforced"
"""Header with the custom tools whose grammar is only part of their description."""


def responses_routes(
    service: ChatService, background: BackgroundResponses | None = None, memory: PlacedMemory | None = None
) -> ApiRouter:
    """Return the routes of the Responses API. None: nothing is stored, and nothing runs in the background.

    memory: what the replies of large stored responses take, until they are sent; None: nothing that counts.
    """
    router = ApiRouter(accepts_transfers=True)
    creation = _Creation(service, background)

    @router.post("/v1/responses", ResponsesRequest)
    async def create_response(body: ResponsesRequest, request: Request) -> Response:
        return await creation.respond(body, request)

    compactions = Compactions(service, None if background is None else background.store)

    @router.post("/v1/responses/compact", CompactionRequest)
    async def compact_conversation(body: CompactionRequest, request: Request) -> Response:
        return await compactions.respond(body, request)

    router.include(unstored_routes() if background is None else stored_routes(background, memory))
    return router


class _Creation:
    def __init__(self, service: ChatService, background: BackgroundResponses | None) -> None:
        self._service = service
        self._background = background
        self._store = None if background is None else background.store
        self._translator = responses_translator()
        self._left_out = LeftOutTools()

    async def respond(self, body: ResponsesRequest, request: Request) -> Response:
        """Return the response to a request. Raises errors that precede its start."""
        body.check_storing(self._store is not None)
        compacts = is_triggered(body)
        headers, continued = RequestHeaders.of(request), Continued()
        context_of(request.scope).body.is_kept = True  # for what may be stored of it
        before: Sequence[dict[str, Any]] = ()
        stores = self._store is not None and body.store is not False and not compacts
        if self._store is not None and (stores or body.previous_response_id is not None):
            continued, before = await continue_after(self._store, body.previous_response_id, context_of(request.scope))
            headers.other_conversation_id = continued.conversation_id
            if stores and headers.request_id is not None:
                await check_new(self._store, headers.caller.tenant, headers.response_id(_PREFIX, None))
        with self._translator.named():
            chat = (summary_request(body) if compacts else body).to_chat(self._translator, before)
            del before  # of a long conversation it takes megabytes
            call = await self._service.prepare(chat, headers, _PREFIX, keeps_output=True)
        if body.wants_logprobs and call.plan is not None:
            raise InvalidRequest(
                f"{LOGPROBS!r} is not supported with tool or reasoning parsers, which do not map text to tokens.",
                param="include",
            )
        recorder = None
        if self._store is not None and stores:
            recorder = Recorder.of(self._store, body, call, headers.caller, continued)
        if compacts:
            http_response = await self._compact(body, call, request)
        else:
            http_response = await self._start(body, call, recorder, request)
        if body.sorted_tools.unenforced:
            http_response.headers[UNENFORCED] = ", ".join(body.sorted_tools.unenforced)
        return self._left_out.name_in(http_response, body.sorted_tools.left_out)

    async def _compact(self, body: ResponsesRequest, call: ChatCall, request: Request) -> Response:
        """Let a call for a summary run; return its response."""
        response = ResponseObject(body, call)
        if body.stream:
            return self._service.stream(call, PartStream(call, SummaryEvents(response, None)))
        return LongResponse(
            response_pieces(await summarized(response, call, await self._service.collect(call, request)))
        )

    async def _start(
        self, body: ResponsesRequest, call: ChatCall, recorder: Recorder | None, request: Request
    ) -> Response:
        """Let a call run, stored if there is a recorder; return its response."""
        response = ResponseObject(body, call, recorder is not None)
        call.prepared.placed_bytes += _TIMES_KEPT * response.echo_bytes + (
            0 if recorder is None else len(recorder.input)
        )
        if body.background and self._background is not None and recorder is not None:
            context = context_of(request.scope)
            client = context.connection
            run = BackgroundResponse(call, response, recorder, context, partial(_full_response, response, call))
            await self._background.start(run, streamed=bool(body.stream))
            if run.log is not None:
                return LogStream(run.log, client)
            await self._background.store.settle()  # its client may ask another process for it at once
            return LongResponse(response_pieces(run.current()))
        if body.stream:
            on_end = None if recorder is None else recorder.put_encoded
            events = ResponseEvents(response, call.body.logprob_style(call.api), on_end)
            return self._service.stream(call, PartStream(call, events))
        full = await _full_response(response, call, await self._service.collect(call, request))
        if recorder is None:
            return LongResponse(response_pieces(full))
        encoded = await in_turns(response_pieces(full))
        recorder.put_encoded(full["status"], encoded)
        return LongResponse([encoded])


async def _full_response(response: ResponseObject, call: ChatCall, choices: list[CollectedChoice]) -> dict[str, Any]:
    """Return the Response of a finished choice. Raises ParserFailed."""
    choice = choices[0]
    style = call.body.logprob_style(call.api)
    messages, usage = await parse_choices(call, choices)
    usage.add_cache(choice.prefill)
    parts = full_parts(messages[0], choice.logprobs)
    statuses = [status_of(choice.finish if part.last else None) for part in parts]
    items = [
        closed_item(part, item_id(part, response.tools), status, response.tools)
        for part, status in zip(parts, statuses, strict=True)
    ]
    call.keep(0, messages_of(None, items))
    shown = [long_item(part, item, style) for part, item in zip(parts, items, strict=True)]
    error = abort_error(choice.finish.reason)
    return response.ended(shown, choice.finish, usage) if error is None else response.failed(shown, error)
