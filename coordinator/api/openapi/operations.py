"""Metadata of every route in the OpenAPI document, by path."""

from tokenwire.coordinator.api.openapi import admin_schemas as admin
from tokenwire.coordinator.api.openapi import messages_schemas as messages
from tokenwire.coordinator.api.openapi import openai_schemas as openai
from tokenwire.coordinator.api.openapi import responses_schemas as responses
from tokenwire.coordinator.api.openapi import token_schemas as tokens
from tokenwire.coordinator.api.openapi.admin_operations import ADMIN_OPERATIONS
from tokenwire.coordinator.api.openapi.operation import Operation

_TALK = [{"role": "user", "content": "Say hello."}]
_ONCE = {"max_tokens": 64}
_ABORTED = "Clients get the tokens so far, with the finish_reason `abort`."
_TOKENIZE = Operation(
    "Token ids", "Tokenize a text or a conversation", tokens.TokenizeResponse, example={"prompt": "Hello"}
)
_DETOKENIZE = Operation("Token ids", "Detokenize ids", tokens.Detokenized, example={"tokens": [1, 2, 3]})
_SGLANG = Operation(
    "SGLang",
    "Generate, in SGLang's format",
    tokens.SglangGenerated | list[tokens.SglangGenerated],
    chunk=tokens.SglangGenerated,
    generates=True,
    example={"text": "Once upon a time", "sampling_params": {"max_new_tokens": 16}},
)


def _of_stored(summary: str) -> Operation:
    return Operation("OpenAI", summary, description="Responses are not stored, so none is ever found.", succeeds=False)


_OPENAI = {
    "/v1/chat/completions": Operation(
        "OpenAI",
        "Create a chat completion",
        openai.ChatCompletion,
        chunk=openai.ChatCompletionChunk,
        generates=True,
        example={"messages": _TALK, **_ONCE},
    ),
    "/v1/chat/completions/tokens": Operation(
        "OpenAI",
        "Create a chat completion from a prompt of ids",
        openai.ChatCompletion,
        chunk=openai.ChatCompletionChunk,
        generates=True,
        description="The messages are only compared to the ids.",
        example={"messages": _TALK, "tokens": [1, 2, 3], **_ONCE},
    ),
    "/v1/completions": Operation(
        "OpenAI",
        "Create a completion",
        openai.Completion,
        chunk=openai.Completion,
        generates=True,
        example={"prompt": "Once upon a time", "max_tokens": 16},
    ),
    "/v1/responses": Operation(
        "OpenAI",
        "Create a response",
        responses.ResponsesResponse,
        chunk=responses.ResponseEvent,
        generates=True,
        example={"input": "Say hello.", "max_output_tokens": 64},
    ),
    "/v1/responses/{response_id}": _of_stored("Retrieve or delete a response"),
    "/v1/responses/{response_id}/input_items": _of_stored("List a response's input"),
    "/v1/responses/{response_id}/cancel": _of_stored("Cancel a response"),
    "/v1/models": Operation("OpenAI", "List models and adapters", openai.ModelList),
    "/v1/chat/completions/render": Operation(
        "OpenAI",
        "Render a chat request without generating",
        tokens.Rendered,
        description="Returns the prompts and the messages that workers would get.",
        example={"messages": _TALK},
    ),
    "/v1/completions/render": Operation(
        "OpenAI",
        "Render a completion request without generating",
        tokens.Rendered,
        description="Returns the prompts and the messages that workers would get.",
        example={"prompt": "Once upon a time"},
    ),
}
_ANTHROPIC = {
    "/v1/messages": Operation(
        "Anthropic",
        "Create a message",
        messages.MessagesResponse,
        chunk=messages.MessageEvent,
        generates=True,
        example={"model": "MODEL", "messages": _TALK, **_ONCE},
    ),
    "/v1/messages/count_tokens": Operation(
        "Anthropic",
        "Count the tokens of a message's prompt",
        messages.TokenCount,
        example={"model": "MODEL", "messages": _TALK},
    ),
}
_TOKENS = {
    "/inference/v1/generate": Operation(
        "Token ids",
        "Generate from token ids",
        tokens.Generated,
        chunk=tokens.GeneratedChunk,
        generates=True,
        example={"token_ids": [1, 2, 3], "sampling_params": {"max_tokens": 16}},
    ),
    "/tokenize": _TOKENIZE,
    "/v1/tokenize": _TOKENIZE,
    "/detokenize": _DETOKENIZE,
    "/v1/detokenize": _DETOKENIZE,
    "/inference/v1/abort_requests": Operation("Token ids", "Abort requests", description=_ABORTED),
    "/abort_requests": Operation(
        "Token ids",
        "Abort requests, or all",
        tokens.Aborted,
        description=f"{_ABORTED} Aborting all of them needs the admin key, where there is one.",
    ),
    "/generate": _SGLANG,
    "/abort_request": Operation(
        "SGLang",
        "Abort a request, or all",
        description=f"{_ABORTED} Aborting all of them needs the admin key, where there is one.",
    ),
    "/workers": Operation("SGLang", "List the workers of a router", tokens.RouterWorkers),
    "/list_workers": Operation("SGLang", "List the URLs of a router's workers", tokens.RouterUrls),
    "/generate/": Operation(
        "TRL", "Generate from prompts", tokens.TrlGenerated, generates=True, example={"prompts": ["Once"]}
    ),
    "/chat/": Operation(
        "TRL", "Generate from conversations", tokens.TrlGenerated, generates=True, example={"messages": [_TALK]}
    ),
    "/get_sequence_logprobs/": Operation(
        "TRL",
        "Score completions",
        tokens.TrlScores,
        generates=True,
        example={"sequences": [[1, 2, 3]], "prompt_lengths": [1], "top_logprobs": 5},
    ),
}
_HEALTH = Operation("Service", "Return 200 when requests can be served", description="Otherwise 503.")
_SERVICE = {
    "/health": _HEALTH,
    "/health/": _HEALTH,
    "/version": Operation("Service", "Return the version", admin.Version),
    "/metrics": Operation("Service", "Return metrics in Prometheus' text format", str),
    "/status.json": Operation("Service", "Return the data of the status page", admin.PageStatus),
    "/status/traffic.json": Operation(
        "Service", "Return an hour of traffic for its charts", admin.PageTraffic, form=admin.Since
    ),
}

OPERATIONS: dict[str, Operation] = {**_OPENAI, **_ANTHROPIC, **_TOKENS, **_SERVICE, **ADMIN_OPERATIONS}
"""By path; all methods of a route are equivalent."""
