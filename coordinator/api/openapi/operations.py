"""Metadata of every route in the OpenAPI document, by path."""

from tokenwire.coordinator.api.openapi import admin_schemas as admin
from tokenwire.coordinator.api.openapi import messages_schemas as messages
from tokenwire.coordinator.api.openapi import openai_schemas as openai
from tokenwire.coordinator.api.openapi import pooling_schemas as pooling
from tokenwire.coordinator.api.openapi import render_schemas as rendered
from tokenwire.coordinator.api.openapi import responses_schemas as responses
from tokenwire.coordinator.api.openapi import token_schemas as tokens
from tokenwire.coordinator.api.openapi.admin_operations import ADMIN_OPERATIONS
from tokenwire.coordinator.api.openapi.operation import Operation
from tokenwire.coordinator.api.openapi.trajectory_operations import TRAJECTORY_OPERATIONS

_TALK = [{"role": "user", "content": "Say hello."}]
_ONCE = {"max_tokens": 64}
_ABORTED = "Clients get the tokens so far, with the finish_reason `abort`."
_RENDERS = "Returns a body for `/inference/v1/generate`, in vLLM's format; nothing is generated."
_DERENDERS = (
    "The reverse of rendering, for a whole reply of `/inference/v1/generate` or, with `stream`, for one of its chunks; "
    "the client carries `stream_state` from each chunk to the next."
)
_SHOWS = "For debugging: the prompts and the messages that workers would get."
_GENERATED = {"choices": [{"index": 0, "token_ids": [1, 2, 3]}]}
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


_SCORE = Operation(
    "OpenAI",
    "Score pairs of texts, in vLLM's format",
    pooling.Scores,
    description="By the cosine of their embeddings, or by a cross encoder.",
    generates=True,
    example={"queries": "Hello", "documents": ["Hi", "world"]},
)
_RERANK = Operation(
    "OpenAI",
    "Rank documents by a query, in Jina's and Cohere's format",
    pooling.Ranking,
    description="As scores, the highest first.",
    generates=True,
    example={"query": "Hello", "documents": ["Hi", "world"], "top_n": 1},
)
_CLASSIFIED = {"input": ["Hello"], "model": "classifier"}
_STORED = "Without --enable-responses-store, none is ever found."


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
    "/v1/embeddings": Operation(
        "OpenAI",
        "Create embeddings",
        pooling.Embeddings,
        description=f"With the `encoding_format` bytes or bytes_only, {pooling.AS_BYTES}",
        generates=True,
        example={"input": ["Hello", "world"]},
    ),
    "/v2/embed": Operation(
        "OpenAI",
        "Create embeddings, in Cohere's format",
        pooling.CohereEmbeddings,
        generates=True,
        example={"texts": ["Hello", "world"]},
    ),
    **dict.fromkeys(("/score", "/v1/score"), _SCORE),
    **dict.fromkeys(("/rerank", "/v1/rerank", "/v2/rerank"), _RERANK),
    "/classify": Operation(
        "OpenAI", "Classify inputs, in vLLM's format", pooling.Classes, generates=True, example=_CLASSIFIED
    ),
    "/pooling": Operation(
        "OpenAI",
        "Pool inputs, in vLLM's format",
        pooling.PooledDataList,
        description="By the task that the model is for. With the `encoding_format` bytes or bytes_only, "
        f"{pooling.AS_BYTES}",
        generates=True,
        example={"input": ["Hello"]},
    ),
    "/v1/responses": Operation(
        "OpenAI",
        "Create a response",
        responses.ResponsesResponse,
        chunk=responses.ResponseEvent,
        generates=True,
        example={"input": "Say hello.", "max_output_tokens": 64},
    ),
    "/v1/responses/compact": Operation(
        "OpenAI",
        "Compact a conversation",
        responses.CompactedResponse,
        description="The model summarizes the conversation. Its user's messages and the summary, as one item, take its "
        "place as input.",
        generates=True,
        example={"input": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi."}]},
    ),
    "/v1/responses/{response_id}": Operation(
        "OpenAI",
        "Retrieve or delete a response",
        responses.ResponsesResponse | responses.DeletedResponse,
        chunk=responses.ResponseEvent,
        description=f"With `stream`, one in the background is streamed, from `starting_after` on. {_STORED}",
        finds=True,
    ),
    "/v1/responses/{response_id}/input_items": Operation(
        "OpenAI",
        "List the input of a response and of those that it continues",
        responses.InputItems,
        description=f"Parameters: `limit` (1 to 100), `order` (asc, desc), `after`, `before`, `include`. {_STORED}",
        finds=True,
    ),
    "/v1/responses/{response_id}/cancel": Operation(
        "OpenAI", "Cancel a response in the background", responses.ResponsesResponse, description=_STORED
    ),
    "/v1/models": Operation("OpenAI", "List models and adapters", openai.ModelList),
    "/v1/chat/completions/render": Operation(
        "OpenAI",
        "Render a chat request as ids",
        rendered.RenderedRequest,
        description=_RENDERS,
        example={"messages": _TALK},
    ),
    "/v1/completions/render": Operation(
        "OpenAI",
        "Render a completion request as ids",
        list[rendered.RenderedRequest],
        description=f"{_RENDERS} One for each prompt.",
        example={"prompt": "Once upon a time"},
    ),
    "/v1/chat/completions/derender": Operation(
        "OpenAI",
        "Return generated ids as a chat completion",
        rendered.DerenderedChat | rendered.DerenderedChatStep,
        description=_DERENDERS,
        example={"generate_response": _GENERATED, "prompt_tokens": 3},
    ),
    "/v1/completions/derender": Operation(
        "OpenAI",
        "Return generated ids as a completion",
        rendered.DerenderedCompletion | rendered.DerenderedCompletionStep,
        description=_DERENDERS,
        example={"generate_responses": [_GENERATED], "prompt_tokens": [3]},
    ),
    "/tokenwire/v1/chat/completions/render": Operation(
        "OpenAI",
        "Show what workers would get of a chat request",
        tokens.Rendered,
        description=_SHOWS,
        example={"messages": _TALK},
    ),
    "/tokenwire/v1/completions/render": Operation(
        "OpenAI",
        "Show what workers would get of a completion request",
        tokens.Rendered,
        description=_SHOWS,
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
    "/v1/messages/render": Operation(
        "Anthropic",
        "Render a message request as ids",
        rendered.RenderedRequest,
        description=_RENDERS,
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
_HEALTH = Operation(
    "Service",
    "Return 200 when requests can be served",
    admin.Healthy,
    description="Otherwise 503. The body is empty unless sessions are recorded.",
)
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

OPERATIONS: dict[str, Operation] = {
    **_OPENAI,
    **_ANTHROPIC,
    **_TOKENS,
    **TRAJECTORY_OPERATIONS,
    **_SERVICE,
    **ADMIN_OPERATIONS,
}
"""By path; all methods of a route are equivalent."""
