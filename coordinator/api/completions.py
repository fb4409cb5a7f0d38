"""POST /v1/completions."""

import time
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from coordinator.api.chunks import CompletionChunks
from coordinator.api.fields import FieldGate, SamplingFields, request_id
from coordinator.api.respond import EventStream, collect
from coordinator.generation import Generation, PreparedRequest
from coordinator.output.collect import CollectedChoice
from coordinator.request import GenerationRequest, Prompt, TextPrompt, TokenPrompt, Usage
from tokenwire.errors import InvalidRequest

# Known to vLLM's completions route only, not served yet, with the values that change nothing.
_NOT_SERVED: dict[str, tuple[Any, ...]] = {
    "logprobs": (None,),
    "best_of": (None, 1),
    "suffix": (None, ""),
    "prompt_embeds": (None,),
    "return_token_offsets": (None, False),
    "mm_payload": (None, "tensors"),
}


class CompletionRequest(SamplingFields):
    """OpenAI's completion request, with vLLM's extensions that are served."""

    prompt: str | list[int] | list[str] | list[list[int]]
    max_tokens: int | None = 16
    add_special_tokens: bool = True

    def prompts(self) -> Sequence[Prompt]:
        """Return the prompts, one or many. Raises InvalidRequest when there is none."""
        if isinstance(self.prompt, str):
            return [TextPrompt(self.prompt, self.add_special_tokens)]
        if not self.prompt:
            raise InvalidRequest("Either prompt or prompt_embeds must be provided and non-empty.", param="prompt")
        if isinstance(self.prompt[0], int):
            return [TokenPrompt(self.prompt)]
        return [
            TextPrompt(part, self.add_special_tokens) if isinstance(part, str) else TokenPrompt(part)
            for part in self.prompt
        ]

    def to_generation(self, response_id: str, session_header: str | None) -> GenerationRequest:
        """Translate into the internal noun. Raises InvalidRequest."""
        return GenerationRequest(
            request_id=response_id,
            model=self.model or "",
            prompts=self.prompts(),
            sampling=self.sampling(self.max_tokens),
            n=1 if self.n is None else self.n,
            text=self.text_rules(),
            priority=self.priority,
            cache_salt=self.cache_salt,
            session_id=self.session_id or session_header,
        )


def completion_routes(generation: Generation) -> APIRouter:
    """Return the completions route."""
    router = APIRouter()
    gate = FieldGate(_NOT_SERVED)

    @router.post("/v1/completions")
    async def create_completion(body: CompletionRequest, request: Request) -> Response:
        gate.check(body)
        response_id = request_id("cmpl", body, request.headers.get("x-request-id"))
        prepared = await generation.prepare(body.to_generation(response_id, request.headers.get("x-session-id")))
        if body.stream:
            return EventStream(generation, prepared, _chunks(body, prepared))
        created = int(time.time())
        choices = await collect(generation, prepared, request)
        return JSONResponse(_whole(body, prepared, choices, created))

    return router


def _chunks(body: CompletionRequest, prepared: PreparedRequest) -> CompletionChunks:
    return CompletionChunks(
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
    body: CompletionRequest, prepared: PreparedRequest, choices: list[CollectedChoice], created: int
) -> dict[str, Any]:
    usage = Usage(prepared.prompt_tokens, sum(len(choice.token_ids) for choice in choices))
    per_prompt = prepared.request.n
    return {
        "id": prepared.request.request_id,
        "object": "text_completion",
        "created": created,
        "model": prepared.model.names[0],
        "choices": [
            {
                "index": index,
                "text": choice.text,
                "logprobs": None,
                "finish_reason": choice.finish.reason,
                "stop_reason": choice.finish.stop_reason,
                "token_ids": choice.token_ids if body.return_token_ids else None,
                "prompt_logprobs": None,
                "prompt_token_ids": list(prepared.prompts[index // per_prompt]) if body.return_token_ids else None,
            }
            for index, choice in enumerate(choices)
        ],
        "service_tier": None,
        "system_fingerprint": None,
        "usage": {**usage.as_dict(), "prompt_tokens_details": None},
        "kv_transfer_params": None,
    }
