"""The types of the comparison: a request, and a server's response."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tokenwire.worker.vllm_engine.embedded_model import EMBEDDED_MODEL_NAME

MODEL = EMBEDDED_MODEL_NAME
CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
RESPONSES, MESSAGES, GENERATE = "/v1/responses", "/v1/messages", "/inference/v1/generate"
TOKENIZE, DETOKENIZE = "/tokenize", "/detokenize"
_ROUTES = {CHAT: "chat", TEXT: "completions"}
MAX_TOKENS = 16
"""The default of requests."""

Ending = tuple[str, str | int | None]
"""finish_reason and stop_reason."""


@dataclass(frozen=True)
class Request:
    """One HTTP request, with the premises under which the reference's response tests what its name claims."""

    path: str
    body: Any
    """JSON, or bytes that are sent as they are."""
    name: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    ends: Ending | None = None
    """How the reference must end its first choice."""
    rejected: bool = False
    """Whether the reference must reject it."""
    as_is: bool = False
    """Whether the corpus leaves it as written instead of sending it not streamed, streamed and with ids."""

    @property
    def streamed(self) -> bool:
        """Whether it requests a stream."""
        return isinstance(self.body, dict) and bool(self.body.get("stream"))

    @property
    def held_back(self) -> int:
        """How many characters the reference may hold back as the start of a stop string."""
        stops = self.field("stop") or []
        if self.field("include_stop_str_in_output") or not isinstance(stops, str | list):
            return 0
        return max((len(stop) for stop in ([stops] if isinstance(stops, str) else stops)), default=1) - 1

    @property
    def alone(self) -> bool:
        """Whether it must not share a batch: vLLM then drops its top logprobs, or pads them."""
        return bool(self.field("logprob_token_ids"))

    @property
    def route(self) -> str:
        """The route's short name."""
        return _ROUTES.get(self.path) or self.path.rpartition("/")[2]

    @property
    def has_choices(self) -> bool:
        """Whether it is for one of the two main routes of the comparison."""
        return self.path in _ROUTES

    def field(self, name: str, default: Any = None) -> Any:
        """Return a field of the body."""
        return self.body.get(name, default) if isinstance(self.body, dict) else default

    def content(self) -> bytes:
        """Return the body as sent."""
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()

    def with_fields(self, suffix: str = "", **fields: Any) -> "Request":
        """Return the same request with other fields."""
        return replace(self, body={**self.body, **fields}, name=f"{self.name}{suffix}")


@dataclass(frozen=True)
class Reply:
    """One complete HTTP response."""

    status: int
    content_type: str
    text: str

    @property
    def is_stream(self) -> bool:
        """Whether it consists of server-sent events."""
        return self.content_type.startswith("text/event-stream")

    @property
    def succeeded(self) -> bool:
        """Whether it is a success: no error status, and no error among its events."""
        failed = ('data: {"error":', "event: error\n", "event: response.failed\n")
        return self.status == 200 and not (self.is_stream and any(sign in self.text for sign in failed))

    def events(self) -> list[str]:
        """Return the data of its events."""
        return [part.removeprefix("data: ") for part in self.text.split("\n\n") if part.startswith("data: ")]

    def json(self) -> Any:
        """Return its body, or its text if that is not JSON."""
        try:
            return json.loads(self.text)
        except ValueError:
            return self.text


def chat(content: Any, ends: Ending | None = None, **options: Any) -> Request:
    """Return a greedy chat request; options override, and None removes a field."""
    messages = content if isinstance(content, list) else [{"role": "user", "content": content}]
    return _request(CHAT, {"messages": messages, "max_tokens": MAX_TOKENS, **options}, ends)


def text(prompt: Any, ends: Ending | None = None, **options: Any) -> Request:
    """Return a greedy completion request; options override, and None removes a field."""
    return _request(TEXT, {"prompt": prompt, "max_tokens": MAX_TOKENS, **options}, ends)


def rejected(request: Request) -> Request:
    """Declare that the reference must reject a request."""
    return replace(request, rejected=True, ends=None)


def as_is(request: Request) -> Request:
    """Declare that a request is only sent as written."""
    return replace(request, as_is=True)


def raw(path: str, body: bytes | dict[str, Any] | Any, headers: Mapping[str, str] | None = None) -> Request:
    """Return a request with exactly this body, which must be rejected."""
    return Request(path, body, headers=headers or {}, rejected=True, as_is=True)


def _request(path: str, fields: dict[str, Any], ends: Ending | None) -> Request:
    body = {"model": MODEL, "temperature": 0, **fields}
    return Request(path, {name: value for name, value in body.items() if value is not None}, ends=ends)
