"""What the OpenAPI document says of each route that answers requests."""

from tokenwire.coordinator.api.openapi import admin_schemas as control
from tokenwire.coordinator.api.openapi import messages_schemas as messages
from tokenwire.coordinator.api.openapi import openai_schemas as openai
from tokenwire.coordinator.api.openapi import responses_schemas as responses
from tokenwire.coordinator.api.openapi import token_schemas as tokens
from tokenwire.coordinator.api.openapi.admin_operations import STEERING
from tokenwire.coordinator.api.openapi.operation import Operation

_TALK = [{"role": "user", "content": "Say hello."}]
_ONCE = {"max_tokens": 64}
_STORED = "Responses are not stored: there is never one to be found."
_ABORTED = "Its client gets what there is so far, with the finish_reason `abort`."
_TOKENIZE = Operation("Token ids", "Turn a text or a conversation into ids", tokens.Tokens, example={"prompt": "Hello"})
_DETOKENIZE = Operation("Token ids", "Turn ids into text", tokens.Detokenized, example={"tokens": [1, 2, 3]})
_SGLANG = Operation(
    "SGLang",
    "Generate, in SGLang's shape",
    tokens.SglangGenerated | list[tokens.SglangGenerated],
    chunk=tokens.SglangGenerated,
    generates=True,
    example={"text": "Once upon a time", "sampling_params": {"max_new_tokens": 16}},
)

_OPENAI = {
    "/v1/chat/completions": Operation(
        "OpenAI",
        "Reply to a conversation",
        openai.ChatCompletion,
        chunk=openai.ChatCompletionChunk,
        generates=True,
        example={"messages": _TALK, **_ONCE},
    ),
    "/v1/chat/completions/tokens": Operation(
        "OpenAI",
        "Reply to a conversation whose prompt is given as ids",
        openai.ChatCompletion,
        chunk=openai.ChatCompletionChunk,
        generates=True,
        description="The messages are only compared with the ids.",
        example={"messages": _TALK, "tokens": [1, 2, 3], **_ONCE},
    ),
    "/v1/completions": Operation(
        "OpenAI",
        "Go on with a text",
        openai.Completion,
        chunk=openai.Completion,
        generates=True,
        example={"prompt": "Once upon a time", "max_tokens": 16},
    ),
    "/v1/responses": Operation(
        "OpenAI",
        "Create a response",
        responses.ResponseAnswer,
        chunk=responses.ResponseEvent,
        generates=True,
        example={"input": "Say hello.", "max_output_tokens": 64},
    ),
    "/v1/responses/{response_id}": Operation("OpenAI", "Find or delete a response", description=_STORED),
    "/v1/responses/{response_id}/input_items": Operation("OpenAI", "List a response's input", description=_STORED),
    "/v1/responses/{response_id}/cancel": Operation("OpenAI", "Cancel a response", description=_STORED),
    "/v1/models": Operation("OpenAI", "List models and adapters", openai.ModelList),
    "/v1/chat/completions/render": Operation(
        "OpenAI",
        "Show what a chat request becomes",
        tokens.Rendered,
        description="Nothing is generated.",
        example={"messages": _TALK},
    ),
    "/v1/completions/render": Operation(
        "OpenAI",
        "Show what a completion request becomes",
        tokens.Rendered,
        description="Nothing is generated.",
        example={"prompt": "Once upon a time"},
    ),
}
_ANTHROPIC = {
    "/v1/messages": Operation(
        "Anthropic",
        "Create a message",
        messages.MessageAnswer,
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
        "Generate ids from ids",
        tokens.Generated,
        chunk=tokens.GeneratedChunk,
        generates=True,
        example={"token_ids": [1, 2, 3], "sampling_params": {"max_tokens": 16}},
    ),
    "/tokenize": _TOKENIZE,
    "/v1/tokenize": _TOKENIZE,
    "/detokenize": _DETOKENIZE,
    "/v1/detokenize": _DETOKENIZE,
    "/inference/v1/abort_requests": Operation("Token ids", "End requests", description=_ABORTED),
    "/abort_requests": Operation(
        "Token ids",
        "End requests, or all",
        tokens.Aborted,
        description=f"{_ABORTED} To end all of them needs the admin key, where there is one.",
    ),
    "/generate": _SGLANG,
    "/abort_request": Operation(
        "SGLang",
        "End a request, or all",
        description=f"{_ABORTED} To end all of them needs the admin key, where there is one.",
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
_HEALTH = Operation("Service", "Tell whether requests can be served", description="Else the status is 503.")
_SERVICE = {
    "/health": _HEALTH,
    "/health/": _HEALTH,
    "/version": Operation("Service", "Name the release", control.Version),
    "/metrics": Operation("Service", "Show metrics, in Prometheus' text format", str),
    "/status.json": Operation("Service", "Show what the status page shows", control.PageStatus),
}

OPERATIONS: dict[str, Operation] = {**_OPENAI, **_ANTHROPIC, **_TOKENS, **_SERVICE, **STEERING}
"""By path; a route with several methods does the same by each."""
