"""POST /v1/chat/completions/tokens: a chat whose prompt is ids; its messages are only compared to them."""

import logging
from dataclasses import replace
from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from tokenwire.coordinator.api.api_request import RequestHeaders, UnsupportedFields
from tokenwire.coordinator.api.fields.media_options import MEDIA_OPTIONS_NOT_SERVED
from tokenwire.coordinator.api.openai.chat import ChatService
from tokenwire.coordinator.api.openai.chat_request import CHAT_NOT_SERVED, ChatCompletionRequest
from tokenwire.coordinator.api.router import ApiRouter
from tokenwire.coordinator.generation.prompts import prepare_prompt
from tokenwire.coordinator.output.settings import ApiSettings
from tokenwire.coordinator.parsing.message import ParserPlan
from tokenwire.coordinator.types import GenerationRequest, ServedModel, TokenPrompt
from tokenwire.errors import InvalidRequest

log = logging.getLogger(__name__)


class ChatTokensRequest(ChatCompletionRequest):
    """A chat completion request with the ids of its prompt."""

    tokens: Annotated[list[int], Field(min_length=1)]

    def to_generation(
        self, id_prefix: str, headers: RequestHeaders, plan: ParserPlan | None, api: ApiSettings
    ) -> GenerationRequest:
        """Translate into a GenerationRequest as a chat, with the given prompt."""
        request = super().to_generation(id_prefix, headers, plan, api)
        return replace(request, prompts=[TokenPrompt(self.tokens, "tokens")], returns_ids=True)


class RenderingCheck:
    """Counts prompts that differ from their rendered messages, which is normal with a token-exact history."""

    def __init__(self, api: ApiSettings) -> None:
        self._api = api
        self.prompts = 0
        """Number of prompts compared."""
        self.mismatches = 0
        """Number of prompts that differ."""

    async def compare(self, body: ChatTokensRequest, model: ServedModel) -> None:
        """Compare a prompt to its messages. Messages that cannot be rendered count as different."""
        self.prompts += 1
        try:
            rendered = (await prepare_prompt(body.prompt(self._api), model)).token_ids
        except InvalidRequest as error:
            self._differs(f"its messages cannot be rendered: {error}")
            return
        if list(rendered) != body.tokens:
            same = next((i for i, (a, b) in enumerate(zip(rendered, body.tokens, strict=False)) if a != b), None)
            place = "in length" if same is None else f"from token {same} on"
            self._differs(f"{len(body.tokens)} tokens differ from the {len(rendered)} of its messages {place}")

    def _differs(self, how: str) -> None:
        self.mismatches += 1
        log.debug("a prompt given as token ids (%d of %d so far): %s", self.mismatches, self.prompts, how)


def chat_tokens_routes(service: ChatService, rendering: RenderingCheck) -> ApiRouter:
    """Return the route."""
    router = ApiRouter(accepts_transfers=True)
    unsupported = UnsupportedFields({**CHAT_NOT_SERVED, **MEDIA_OPTIONS_NOT_SERVED})

    @router.post("/v1/chat/completions/tokens", ChatTokensRequest)
    async def create_chat_completion_of_tokens(body: ChatTokensRequest, request: Request) -> Response:
        unsupported.check_body(body)
        call = await service.prepare(body, RequestHeaders.of(request))
        await rendering.compare(body, call.prepared.model)
        return await service.respond(call, request)

    return router
