"""POST /v1/chat/completions."""

import time
from collections.abc import Mapping
from typing import Any, Literal

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from coordinator.api.chunks import ChatChunks, ChunkOptions
from coordinator.api.fields import NOT_SERVED, Headers, SamplingFields, check_stream_options, request_id
from coordinator.api.gate import FieldGate
from coordinator.api.logprobs import LogprobStyle, chat_logprobs, prompt_logprobs
from coordinator.api.respond import EventStream, collect
from coordinator.generation import Generation, PreparedRequest
from coordinator.output.collect import CollectedChoice
from coordinator.request import ChatPrompt, GenerationRequest, Prompt, TokenPrompt, Usage
from coordinator.settings import ApiSettings
from coordinator.text.options import TemplateOptions
from coordinator.text.tools import parse_tools
from tokenwire.errors import InvalidRequest

# Known to vLLM's chat route only, not served, with the values that change nothing.
_NOT_SERVED: dict[str, tuple[Any, ...]] = {
    **NOT_SERVED,
    "functions": (None,),
    "function_call": (None, "none"),
    "media_io_kwargs": (None, {}),
    "mm_processor_kwargs": (None, {}),
    "modalities": (None, ["text"]),
    "audio": (None,),
    "prediction": (None,),
    "web_search_options": (None,),
    "verbosity": (None,),
    "return_mm_kwargs": (None, True, False),
}


class ChatCompletionRequest(SamplingFields):
    """OpenAI's chat completion request, with vLLM's extensions."""

    messages: list[dict[str, Any]]
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    logprobs: bool | None = False
    top_logprobs: int | None = 0
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    include_reasoning: bool = True
    documents: list[dict[str, str]] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    return_prompt_text: bool | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = True

    @property
    def role(self) -> str:
        """The role of the reply."""
        return "assistant" if self.add_generation_prompt else str(self.messages[-1].get("role", "assistant"))

    @property
    def wanted_logprobs(self) -> int | None:
        """How many of the likeliest tokens to report with each token; None: no report."""
        return (self.top_logprobs or 0) if self.logprobs else None

    def check(self) -> None:
        """Check fields against each other. Raises InvalidRequest."""
        check_stream_options(self)
        self.check_logprobs()
        top = self.top_logprobs or 0
        if top < -1:
            raise InvalidRequest("`top_logprobs` must be a positive value or -1.", param="top_logprobs")
        if top and not self.logprobs:
            raise InvalidRequest("when using `top_logprobs`, `logprobs` must be set to true.", param="top_logprobs")
        if self.logprob_token_ids and not self.logprobs:
            raise InvalidRequest(
                "when using `logprob_token_ids`, `logprobs` must be set to true.", param="logprob_token_ids"
            )
        if not self.messages:
            raise InvalidRequest("messages must not be empty.", param="messages")
        if self.continue_final_message and self.add_generation_prompt:
            raise InvalidRequest(
                "Cannot set both `continue_final_message` and `add_generation_prompt` to True.",
                param="continue_final_message",
            )

    def prompt(self) -> Prompt:
        """Return the messages, or the ids that stand for them: a prefill worker's, handed on. Raises InvalidRequest."""
        handed_on = (self.kv_transfer_params or {}).pop("prompt_token_ids", None)
        if handed_on is not None and not self.echo:
            return TokenPrompt(_checked_ids(handed_on))
        options = TemplateOptions(
            add_generation_prompt=self.add_generation_prompt,
            continue_final_message=self.continue_final_message,
            tools=parse_tools(self.tools),
            documents=self.documents,
            reasoning_effort=self.reasoning_effort,
            chat_template=self.chat_template,
            kwargs=self.chat_template_kwargs or {},
        )
        return ChatPrompt(self.messages, options, self.add_special_tokens)

    def to_generation(self, response_id: str, headers: Headers) -> GenerationRequest:
        """Translate into the internal noun. Raises InvalidRequest."""
        completion_limit = self.max_completion_tokens is not None
        prompt = self.prompt()
        return GenerationRequest(
            request_id=response_id,
            model=self.model or "",
            prompts=[prompt],
            sampling=self.sampling(
                self.max_completion_tokens if completion_limit else self.max_tokens,
                self.wanted_logprobs,
                prompt_logprobs=(self.top_logprobs or 0) if self.echo else None,
            ),
            n=1 if self.n is None else self.n,
            text=self.text_rules(),
            max_tokens_param="max_completion_tokens" if completion_limit else "max_tokens",
            priority=headers.priority(self.priority),
            cache_salt=self.cache_salt,
            session_id=headers.session(self),
            data_parallel_rank=headers.data_parallel_rank,
            truncation=self.truncation(),
            stream_interval=self.stream_interval or 1,
        )

    def echoed(self) -> str:
        """Return the text of the last message, where it is to be repeated before the reply."""
        last = self.messages[-1]
        if not self.echo or last.get("role") != self.role:
            return ""
        content = last.get("content") or ""
        return content if isinstance(content, str) else "\n".join(part.get("text") or "" for part in content)

    def chunk_options(self, api: ApiSettings) -> ChunkOptions:
        """Return what a stream shows beside the text."""
        return ChunkOptions(
            return_token_ids=bool(self.return_token_ids),
            include_usage=self.include_usage,
            continuous_usage=self.continuous_usage,
            usage_details=api.prompt_tokens_details,
            logprobs=self.logprob_style(api),
            show_prompt=bool(self.return_prompt_text),
        )

    def logprob_style(self, api: ApiSettings) -> LogprobStyle | None:
        """Return how log-probabilities are shown, None where they are not."""
        if self.wanted_logprobs is None:
            return None
        as_ids = self.return_tokens_as_token_ids
        return LogprobStyle(
            self.wanted_logprobs,
            everything=bool(self.logprob_token_ids),
            as_token_ids=api.tokens_as_token_ids if as_ids is None else as_ids,
        )


def _checked_ids(value: Any) -> list[int]:
    if not isinstance(value, list) or not value or any(type(item) is not int or item < 0 for item in value):
        raise InvalidRequest(
            "`kv_transfer_params['prompt_token_ids']` must be a non-empty list of non-negative integers.",
            param="kv_transfer_params.prompt_token_ids",
        )
    return value


def chat_routes(generation: Generation, api: ApiSettings) -> APIRouter:
    """Return the chat route."""
    router = APIRouter()
    gate = FieldGate(_NOT_SERVED)

    @router.post("/v1/chat/completions")
    async def create_chat_completion(body: ChatCompletionRequest, request: Request) -> Response:
        gate.check(body.model_extra)
        body.check()
        headers = Headers(request.headers)
        response_id = request_id("chatcmpl", body, headers.request_id)
        prepared = await generation.prepare(body.to_generation(response_id, headers))
        created = int(time.time())
        if body.stream:
            chunks = ChatChunks(prepared, created, body.chunk_options(api), role=body.role, echo=body.echoed())
            return EventStream(generation, prepared, chunks)
        choices = await collect(generation, prepared, request)
        return JSONResponse(_whole(body, api, prepared, choices, created))

    return router


def _whole(
    body: ChatCompletionRequest,
    api: ApiSettings,
    prepared: PreparedRequest,
    choices: list[CollectedChoice],
    created: int,
) -> dict[str, Any]:
    prompt, first = prepared.prompts[0], choices[0]
    usage = Usage(prepared.prompt_tokens, sum(len(choice.token_ids) for choice in choices))
    if api.prompt_tokens_details:
        usage.cached_tokens = first.prefill.cached_tokens
    return {
        "id": prepared.request.request_id,
        "object": "chat.completion",
        "created": created,
        "model": prepared.model.names[0],
        "choices": [_choice(body, api, index, choice) for index, choice in enumerate(choices)],
        "service_tier": None,
        "system_fingerprint": None,
        "usage": {"prompt_tokens_details": None, "completion_tokens_details": None, **usage.as_dict()},
        "prompt_logprobs": prompt_logprobs(first.prefill.logprobs),
        "prompt_token_ids": list(prompt.token_ids) if body.return_token_ids else None,
        "prompt_text": prompt.text if body.return_prompt_text else None,
        "kv_transfer_params": first.finish.kv_transfer_params,
        "ec_transfer_params": None,
        "metrics": None,
    }


def _choice(body: ChatCompletionRequest, api: ApiSettings, index: int, choice: CollectedChoice) -> Mapping[str, Any]:
    style = body.logprob_style(api)
    return {
        "index": index,
        "message": {
            "role": body.role,
            "content": body.echoed() + choice.text,
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
            "reasoning": None,
        },
        "logprobs": None if style is None else chat_logprobs(choice.logprobs or [], style),
        "finish_reason": choice.finish.reason,
        "stop_reason": choice.finish.stop_reason,
        "token_ids": choice.token_ids if body.return_token_ids else None,
        "routed_experts": None,
    }
