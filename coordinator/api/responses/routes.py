"""POST /v1/responses. Nothing is stored, so the routes of stored responses return 404."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tokenwire.coordinator.api.api_request import RequestHeaders
from tokenwire.coordinator.api.fields.left_out import LeftOutTools
from tokenwire.coordinator.api.message_parts import PartStream, abort_error, full_parts
from tokenwire.coordinator.api.openai.chat import ChatCall, ChatService, parse_choices
from tokenwire.coordinator.api.responses.events import ResponseEvents
from tokenwire.coordinator.api.responses.items import messages_of
from tokenwire.coordinator.api.responses.request import LOGPROBS, ResponsesRequest, responses_translator
from tokenwire.coordinator.api.responses.response import ResponseObject, closed_item, item_id, status_of
from tokenwire.coordinator.api.router import ApiRouter
from tokenwire.coordinator.output.collect import CollectedChoice
from tokenwire.errors import InvalidRequest, NotFound

UNENFORCED = "X-Tokenwire-Grammar-Unenforced"
"""Header with the custom tools whose grammar is only part of their description."""


def responses_routes(service: ChatService) -> ApiRouter:
    """Return the routes of the Responses API."""
    router = ApiRouter(accepts_transfers=True)
    translator = responses_translator()
    left_out = LeftOutTools()

    @router.post("/v1/responses", ResponsesRequest)
    async def create_response(body: ResponsesRequest, request: Request) -> Response:
        with translator.named():
            call = await service.prepare(body.to_chat(translator), RequestHeaders.of(request), "resp_")
        if body.wants_logprobs and call.plan is not None:
            raise InvalidRequest(
                f"{LOGPROBS!r} is not supported with tool or reasoning parsers, which do not map text to tokens.",
                param="include",
            )
        response = ResponseObject(body, call)
        http_response: Response
        if body.stream:
            events = ResponseEvents(response, call.body.logprob_style(call.api))
            http_response = service.stream(call, PartStream(call, events))
        else:
            http_response = JSONResponse(_full_response(response, call, await service.collect(call, request)))
        if body.sorted_tools.unenforced:
            http_response.headers[UNENFORCED] = ", ".join(body.sorted_tools.unenforced)
        return left_out.name_in(http_response, body.sorted_tools.left_out)

    @router.get("/v1/responses/{response_id}")
    @router.delete("/v1/responses/{response_id}")
    @router.get("/v1/responses/{response_id}/input_items")
    @router.post("/v1/responses/{response_id}/cancel")
    async def find_response(request: Request) -> Response:
        response_id = request.path_params["response_id"]
        raise NotFound(f"There is no response {response_id!r}: responses are not stored here.", param="response_id")

    return router


def _full_response(response: ResponseObject, call: ChatCall, choices: list[CollectedChoice]) -> dict[str, object]:
    """Return the Response of a finished choice. Raises ParserFailed."""
    choice = choices[0]
    style = call.body.logprob_style(call.api)
    messages, usage = parse_choices(call, choices)
    usage.cached_tokens = choice.prefill.cached_tokens
    parts = full_parts(messages[0], choice.logprobs)
    statuses = [status_of(choice.finish if part.last else None) for part in parts]
    items = [
        closed_item(part, item_id(part, response.tools), status, response.tools, style)
        for part, status in zip(parts, statuses, strict=True)
    ]
    call.keep(0, messages_of(None, items))
    error = abort_error(choice.finish.reason)
    return response.ended(items, choice.finish, usage) if error is None else response.failed(items, error)
