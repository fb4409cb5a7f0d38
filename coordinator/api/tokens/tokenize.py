"""POST /tokenize and /detokenize, also under /v1, in vLLM's formats."""

from array import array
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tokenwire.coordinator.api.api_request import RequestHeaders, context_of
from tokenwire.coordinator.api.fields.common import Identifier
from tokenwire.coordinator.api.fields.media_options import MediaOptionFields
from tokenwire.coordinator.api.fields.token_history import TokenHistoryFields
from tokenwire.coordinator.api.fields.tools import parse_tools
from tokenwire.coordinator.api.json_pieces import slices
from tokenwire.coordinator.api.long_response import with_long_lists
from tokenwire.coordinator.api.respond import while_connected
from tokenwire.coordinator.api.router import ApiRouter
from tokenwire.coordinator.generation.limits import check_ids
from tokenwire.coordinator.generation.model_directory import ModelDirectory
from tokenwire.coordinator.generation.service import GenerationService
from tokenwire.coordinator.output.settings import ApiSettings
from tokenwire.coordinator.parsing.request_model import RequestModel
from tokenwire.coordinator.text.template.template_options import TemplateOptions
from tokenwire.coordinator.text.text_length import text_chars
from tokenwire.coordinator.text.tokenizer import ModelTokenizer
from tokenwire.coordinator.types import ChatPrompt, TextPrompt
from tokenwire.errors import InvalidRequest, mib


class TokenizeRequest(TokenHistoryFields, MediaOptionFields):
    """Either a prompt or messages."""

    model: str | None = None
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    add_special_tokens: bool | None = None
    """Default: true for a prompt, false for messages, because their template adds special tokens."""
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    return_token_strs: bool | None = False
    cache_salt: Identifier | None = None
    session_id: Identifier | None = None

    def to_prompt(self, api: ApiSettings, headers: RequestHeaders) -> ChatPrompt | TextPrompt:
        """Return the prompt. Raises InvalidRequest unless exactly one form is given."""
        if (self.prompt is None) == (self.messages is None):
            raise InvalidRequest("Either `prompt` or `messages` must be provided.", param="prompt")
        if self.prompt is not None:
            return TextPrompt(self.prompt, True if self.add_special_tokens is None else self.add_special_tokens)
        if self.continue_final_message and self.add_generation_prompt:
            raise InvalidRequest(
                "Cannot set both `continue_final_message` and `add_generation_prompt` to True.",
                param="continue_final_message",
            )
        options = TemplateOptions(
            add_generation_prompt=self.add_generation_prompt,
            continue_final_message=self.continue_final_message,
            tools=parse_tools(self.tools),
            chat_template=self.chat_template,
            kwargs=self.chat_template_kwargs or {},
        )
        messages = self.messages or []
        # Like a chat with these messages it uses stored history, but it stores nothing.
        history = self.exact_history(
            messages,
            api.token_history,
            tenant=headers.caller.tenant,
            cache_salt=self.cache_salt,
            conversation_id=self.session_id or headers.conversation_id,
            keeps=False,
        )
        return ChatPrompt(messages, options, bool(self.add_special_tokens), history)


class DetokenizeRequest(RequestModel):
    """Ids to turn into text."""

    model: str | None = None
    tokens: list[int]


def tokenize_routes(models: ModelDirectory, generation: GenerationService, api: ApiSettings) -> ApiRouter:
    """Return the tokenizer routes."""
    router = ApiRouter()

    @router.post("/tokenize", TokenizeRequest)
    @router.post("/v1/tokenize", TokenizeRequest)
    async def tokenize_text(body: TokenizeRequest, request: Request) -> Response:
        headers = RequestHeaders.of(request)
        model = await models.resolve(body.model, headers.caller)
        prompt = body.to_prompt(api, headers)
        options = None if body.messages is None else body.media_options(api)
        preparing = generation.prepare_prompt(
            prompt, model, caller=headers.caller, media_options=options, body=headers.body
        )
        prepared = await (while_connected(headers.connection, preparing) if model.media else preparing)
        token_ids = array("I", prepared.token_ids)  # a tenth of a list, for as long as the response is sent
        token_to_str = model.tokenizer.token_to_str
        strings = ([token_to_str(each) for each in part] for part in slices(token_ids))
        return with_long_lists(
            {"count": len(token_ids), "max_model_len": model.max_model_len},
            {"tokens": slices(token_ids), "token_strs": strings if body.return_token_strs else None},
        )

    @router.post("/detokenize", DetokenizeRequest)
    @router.post("/v1/detokenize", DetokenizeRequest)
    async def detokenize(body: DetokenizeRequest, request: Request) -> Response:
        context = context_of(request.scope)
        model = await models.resolve(body.model, context.caller)
        check_ids(body.tokens, model, "tokens")
        if (most_chars := context.body.budget.max_body_bytes) is not None:
            await _check_text(body.tokens, model.tokenizer, most_chars)
        return JSONResponse({"prompt": await model.tokenizer.decode_async(body.tokens, skip_special_tokens=False)})

    return router


async def _check_text(token_ids: Sequence[int], tokenizer: ModelTokenizer, most_chars: int) -> None:
    """Check that ids have no more text than a request may have. Raises InvalidRequest."""
    chars = await text_chars(tokenizer, token_ids, most_chars)
    if chars > most_chars:
        raise InvalidRequest(
            f"The tokens have about {mib(chars)} of text, more than {mib(most_chars)} (--max-body-mb).", param="tokens"
        )
