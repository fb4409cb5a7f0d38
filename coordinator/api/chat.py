"""POST /v1/chat/completions."""

import time
from typing import Any

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import JSONResponse, Response

from coordinator.api.chunks import ChatChunks
from coordinator.api.fields import FieldGate, SamplingFields, request_id
from coordinator.api.respond import EventStream, collect
from coordinator.generation import Generation, PreparedRequest
from coordinator.output.collect import CollectedChoice
from coordinator.request import ChatPrompt, GenerationRequest, Usage
from tokenwire.errors import InvalidRequest

# Known to vLLM's chat route only, not served yet, with the values that change nothing.
_NOT_SERVED: dict[str, tuple[Any, ...]] = {
    "logprobs": (None, False),
    "top_logprobs": (None, 0),
    "tools": (None,),
    "tool_choice": (None, "none"),
    "functions": (None,),
    "function_call": (None, "none"),
    "parallel_tool_calls": (None, True, False),
    "reasoning_effort": (None,),
    "include_reasoning": (None, True),
    "documents": (None,),
    "chat_template": (None,),
    "media_io_kwargs": (None,),
    "mm_processor_kwargs": (None,),
    "modalities": (None, ["text"]),
    "audio": (None,),
    "prediction": (None,),
    "web_search_options": (None,),
    "verbosity": (None,),
    "return_token_offsets": (None, False),
    "return_prompt_text": (None, False),
    "mm_payload": (None, "tensors"),
    "return_mm_kwargs": (None,),
}


class ChatCompletionRequest(SamplingFields):
    """OpenAI's chat completion request, with vLLM's extensions that are served."""

    messages: list[dict[str, Any]]
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)

    @property
    def role(self) -> str:
        """The role of the reply."""
        return "assistant" if self.add_generation_prompt else str(self.messages[-1].get("role", "assistant"))

    def to_generation(self, response_id: str, session_header: str | None) -> GenerationRequest:
        """Translate into the internal noun. Raises InvalidRequest."""
        if not self.messages:
            raise InvalidRequest("messages must not be empty.", param="messages")
        if self.continue_final_message and self.add_generation_prompt:
            raise InvalidRequest(
                "Cannot set both `continue_final_message` and `add_generation_prompt` to True.",
                param="continue_final_message",
            )
        completion_limit = self.max_completion_tokens is not None
        prompt = ChatPrompt(
            self.messages,
            self.add_generation_prompt,
            self.continue_final_message,
            self.add_special_tokens,
            self.chat_template_kwargs,
        )
        return GenerationRequest(
            request_id=response_id,
            model=self.model or "",
            prompts=[prompt],
            sampling=self.sampling(self.max_completion_tokens if completion_limit else self.max_tokens),
            n=1 if self.n is None else self.n,
            text=self.text_rules(),
            max_tokens_param="max_completion_tokens" if completion_limit else "max_tokens",
            priority=self.priority,
            cache_salt=self.cache_salt,
            session_id=self.session_id or session_header,
        )


def chat_routes(generation: Generation) -> APIRouter:
    """Return the chat route."""
    router = APIRouter()
    gate = FieldGate(_NOT_SERVED)

    @router.post("/v1/chat/completions")
    async def create_chat_completion(body: ChatCompletionRequest, request: Request) -> Response:
        gate.check(body)
        response_id = request_id("chatcmpl", body, request.headers.get("x-request-id"))
        prepared = await generation.prepare(body.to_generation(response_id, request.headers.get("x-session-id")))
        if body.stream:
            return EventStream(generation, prepared, _chunks(body, prepared))
        created = int(time.time())
        choices = await collect(generation, prepared, request)
        return JSONResponse(_whole(body, prepared, choices, created))

    return router


def _chunks(body: ChatCompletionRequest, prepared: PreparedRequest) -> ChatChunks:
    return ChatChunks(
        role=body.role,
        response_id=prepared.request.request_id,
        created=int(time.time()),
        model=prepared.model.names[0],
        choices=prepared.choices,
        return_token_ids=bool(body.return_token_ids),
        include_usage=body.include_usage,
        continuous_usage=body.continuous_usage,
        prompts=prepared.prompts,
    )


def _whole(
    body: ChatCompletionRequest, prepared: PreparedRequest, choices: list[CollectedChoice], created: int
) -> dict[str, Any]:
    usage = Usage(prepared.prompt_tokens, sum(len(choice.token_ids) for choice in choices))
    return {
        "id": prepared.request.request_id,
        "object": "chat.completion",
        "created": created,
        "model": prepared.model.names[0],
        "choices": [_choice(body, index, choice) for index, choice in enumerate(choices)],
        "service_tier": None,
        "system_fingerprint": None,
        "usage": {**usage.as_dict(), "prompt_tokens_details": None},
        "prompt_logprobs": None,
        "prompt_token_ids": list(prepared.prompts[0]) if body.return_token_ids else None,
        "kv_transfer_params": None,
    }


def _choice(body: ChatCompletionRequest, index: int, choice: CollectedChoice) -> dict[str, Any]:
    return {
        "index": index,
        "message": {
            "role": body.role,
            "content": choice.text,
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
            "reasoning": None,
        },
        "logprobs": None,
        "finish_reason": choice.finish.reason,
        "stop_reason": choice.finish.stop_reason,
        "token_ids": choice.token_ids if body.return_token_ids else None,
    }
