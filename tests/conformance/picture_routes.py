"""Chats with pictures as requests of each route, whole and streamed, and what has to be equal of the replies."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from tokenwire.worker.vllm_engine.embedded_model import EMBEDDED_MODEL_NAME

_TOKENS = 8
_GREEDY = {"model": EMBEDDED_MODEL_NAME, "temperature": 0}
Messages = Sequence[dict[str, Any]]


@dataclass
class PictureReply:
    """What has to be equal of a reply; what a route does not tell stays empty."""

    text: str = ""
    reason: str = ""
    tokens: tuple[int, int] = (0, 0)
    """Of the prompt, and of the reply."""
    picture_tokens: int = 0
    prompt_ids: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    def exact(self) -> tuple[Any, ...]:
        """Return all but the log-probabilities."""
        return self.text, self.reason, self.tokens, self.picture_tokens, self.prompt_ids, self.ids


@dataclass(frozen=True)
class Route:
    """How a route takes a chat and tells its reply."""

    path: str
    body: Callable[[Messages], dict[str, Any] | None]
    """None: it has no form for this chat."""
    whole: Callable[[Any], PictureReply]
    streamed: Callable[[Sequence[Any]], PictureReply]

    def ask(self, url: str, messages: Messages) -> httpx.Response | None:
        """Return the response to a chat; None: the route has no form for it."""
        body = self.body(messages)
        return None if body is None else httpx.post(url + self.path, json={**_GREEDY, **body}, timeout=120)

    def reply(self, response: httpx.Response) -> PictureReply:
        """Return what has to be equal of a successful response."""
        assert response.status_code == 200, response.text
        return self.whole(response.json())

    def streamed_reply(self, url: str, messages: Messages) -> PictureReply:
        """Return the same as a stream tells it."""
        body = {**_GREEDY, **(self.body(messages) or {}), "stream": True}
        if self is CHAT:
            body["stream_options"] = {"include_usage": True}
        return self.streamed(list(_events(url + self.path, body)))


def _events(url: str, body: dict[str, Any]) -> Iterator[Any]:
    with httpx.stream("POST", url, json=body, timeout=120) as response:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                yield json.loads(line.removeprefix("data: "))


def _chat_request(messages: Messages) -> dict[str, Any]:
    wanted = {"logprobs": True, "top_logprobs": 2, "return_token_ids": True}
    return {"messages": list(messages), "max_tokens": _TOKENS, **wanted}


def _chat_reply(body: Any) -> PictureReply:
    choice = body["choices"][0]
    reply = PictureReply(choice["message"]["content"], choice["finish_reason"], prompt_ids=body["prompt_token_ids"])
    reply.ids, reply.logprobs = choice["token_ids"], _logprobs(choice["logprobs"]["content"])
    _add_chat_usage(reply, body["usage"])
    return reply


def _chat_stream(chunks: Sequence[Any]) -> PictureReply:
    reply = PictureReply()
    for chunk in chunks:
        reply.prompt_ids = chunk.get("prompt_token_ids") or reply.prompt_ids
        for choice in chunk["choices"]:
            reply.text += choice["delta"].get("content") or ""
            reply.reason = choice["finish_reason"] or reply.reason
            reply.ids += choice.get("token_ids") or []
            reply.logprobs += _logprobs((choice.get("logprobs") or {}).get("content") or [])
        if chunk.get("usage"):
            _add_chat_usage(reply, chunk["usage"])
    return reply


def _add_chat_usage(reply: PictureReply, usage: dict[str, Any]) -> None:
    reply.tokens = usage["prompt_tokens"], usage["completion_tokens"]
    details = usage.get("prompt_tokens_details") or {}
    reply.picture_tokens = (details.get("multimodal_tokens") or {}).get("image", 0)


def _logprobs(content: Sequence[Any]) -> list[float]:
    return [each["logprob"] for entry in content for each in (entry, *(entry.get("top_logprobs") or ()))]


def _responses_request(messages: Messages) -> dict[str, Any] | None:
    items: list[Any] = []
    for message in messages:
        if message["role"] == "tool" or message.get("tool_calls"):
            return None  # vLLM's server takes only texts as outputs of functions
        items.append({"role": message["role"], "content": _converted(message["content"], _responses_part)})
    include = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    return {"input": items, "max_output_tokens": _TOKENS, **include}


def _responses_part(part: dict[str, Any]) -> dict[str, Any]:
    if part["type"] == "text":
        return {"type": "input_text", "text": part["text"]}
    return {"type": "input_image", "image_url": part["image_url"]["url"], "detail": "auto"}


def _response_reply(body: Any) -> PictureReply:
    (part,) = body["output"][0]["content"]
    tokens = body["usage"]["input_tokens"], body["usage"]["output_tokens"]
    return PictureReply(part["text"], body["status"], tokens, logprobs=_logprobs(part["logprobs"]))


def _response_stream(events: Sequence[Any]) -> PictureReply:
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    reply = _response_reply(events[-1]["response"])
    reply.text = "".join(each["delta"] for each in deltas)
    reply.logprobs = [score for each in deltas for score in _logprobs(each["logprobs"])]
    return reply


def _messages_request(messages: Messages) -> dict[str, Any] | None:
    if messages[0]["role"] == "system":
        return None  # its system prompt is text
    turns = []
    for message in messages:
        if message.get("tool_calls"):
            content: Any = [{"type": "tool_use", "id": "1", "name": "look", "input": {}}]
        else:
            content = _converted(message["content"], _block)
        if message["role"] == "tool":
            content = [{"type": "tool_result", "tool_use_id": "1", "content": content}]
        turns.append({"role": "user" if message["role"] == "tool" else message["role"], "content": content})
    return {"messages": turns, "max_tokens": _TOKENS}


def _block(part: dict[str, Any]) -> dict[str, Any]:
    if part["type"] == "text":
        return part
    data = part["image_url"]["url"].partition(",")[2]
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


def _message_reply(body: Any) -> PictureReply:
    return PictureReply(body["content"][0]["text"], body["stop_reason"], _message_tokens(body["usage"]))


def _message_stream(events: Sequence[Any]) -> PictureReply:
    reply = PictureReply()
    usage: dict[str, int] = {}
    for event in events:
        if event["type"] == "message_start":
            usage |= event["message"]["usage"]
        elif event["type"] == "content_block_delta":
            reply.text += event["delta"]["text"]
        elif event["type"] == "message_delta":
            reply.reason = event["delta"]["stop_reason"]
            usage |= event["usage"]
    reply.tokens = _message_tokens(usage)
    return reply


def _message_tokens(usage: dict[str, Any]) -> tuple[int, int]:
    parts = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return sum(usage.get(part) or 0 for part in parts), usage["output_tokens"]


def _converted(content: Any, convert: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    return content if isinstance(content, str) else [convert(part) for part in content]


CHAT = Route("/v1/chat/completions", _chat_request, _chat_reply, _chat_stream)
ROUTES = (
    CHAT,
    Route("/v1/responses", _responses_request, _response_reply, _response_stream),
    Route("/v1/messages", _messages_request, _message_reply, _message_stream),
)
