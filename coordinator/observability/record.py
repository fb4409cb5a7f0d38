"""The record of one request for metrics, logs and traces: filled in as it proceeds, read at its end."""

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from tokenwire.coordinator.types import Finish
from tokenwire.errors import TokenwireError
from tokenwire.process.value_class import value_class

if TYPE_CHECKING:
    from tokenwire.coordinator.fleet.session import WorkerSession
    from tokenwire.coordinator.fleet.submission import Submission

Outcome = Literal["ok", "invalid", "rejected", "unavailable", "error", "deadline", "client_disconnected", "client_slow"]
_OUTCOMES: dict[int, Outcome] = {
    408: "deadline",
    429: "rejected",
    499: "client_disconnected",
    503: "unavailable",
    504: "deadline",
}

PrefixCause = Literal[
    "none", "edited", "branch", "compacted", "template", "salt", "model", "weights", "other_worker", "evicted"
]
"""Why a prompt of a session could not use what was cached of the last one."""

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_MAX_TRACE_STATE = 512


@dataclass(slots=True)
class RequestRecord:
    """One request. Times are from time.monotonic; None: that point was not reached."""

    method: str = ""
    began_at: float = field(default_factory=time.monotonic)
    ended_at: float | None = None
    route: str = "none"
    """The template of its path; "none" for unknown paths and for requests that reached no route."""
    status: int = 0
    """Of the response; 0 before there is one, 499 if the client disconnected first."""
    trace_headers: dict[str, str] = field(default_factory=dict)
    """W3C trace context for workers: the client's, or that of our own span."""
    tenant: str = ""
    request_id: str = ""
    """Empty for requests that generate nothing."""
    model: str = ""
    """First name of the model itself, also for adapters."""
    keeps_prompt: bool = False
    """Whether a listener needs the prompt."""
    prompt: str | None = None
    """Text of the (first) prompt, if a listener needs it."""
    choices: int = 0
    prompt_tokens: int = 0
    reused_tokens: int = 0
    """Prompt tokens reused from the history of chats."""
    cached_tokens: int = 0
    """Prompt tokens found in workers' prefix caches."""
    completion_tokens: int = 0
    divergence: "PrefixDivergence | None" = None
    """Where its prompt left the last one of its session; None without one."""
    workers: list[str] = field(default_factory=list)
    """The worker that got it, and those that it was resumed on."""
    session: "WorkerSession | None" = None
    """The session with the worker that got it first."""
    submitted_at: float | None = None
    placed_at: float | None = None
    """When it was placed on a worker."""
    first_token_at: float | None = None
    last_token_at: float | None = None
    finishes: Sequence[Finish] = ()
    """Of the finished choices."""
    error: TokenwireError | None = None
    """The error that ended a reply mid-stream."""
    requested_model: str = ""
    """The model named by a rejected request: the client's own text, so never a metric label."""
    reason: str = ""
    """Why it was rejected; may quote text of the client."""
    param: str | None = None
    """The invalid field."""
    client: Literal["", "client_disconnected", "client_slow"] = ""
    """How the client ended the request early."""

    @property
    def generates(self) -> bool:
        """Whether it got as far as generation."""
        return bool(self.request_id)

    @property
    def outcome(self) -> Outcome:
        """The outcome, as a metric label."""
        if self.client:
            return self.client
        status = self.status if self.error is None else self.error.http_status
        if status in _OUTCOMES:
            return _OUTCOMES[status]
        return "ok" if status < 400 else "invalid" if status < 500 else "error"

    @property
    def duration_s(self) -> float:
        """Seconds from its start to its end, or until now."""
        return (time.monotonic() if self.ended_at is None else self.ended_at) - self.began_at

    @property
    def queue_s(self) -> float | None:
        """Seconds in the queue."""
        begin, end = self.submitted_at, self.placed_at
        return None if begin is None or end is None else end - begin

    @property
    def first_token_s(self) -> float | None:
        """Seconds from its start to the first token."""
        return None if self.first_token_at is None else self.first_token_at - self.began_at

    @property
    def per_token_s(self) -> float | None:
        """Mean seconds per token of a choice after its first."""
        first, last, gaps = self.first_token_at, self.last_token_at, self.completion_tokens - self.choices
        return None if first is None or last is None or gaps <= 0 else (last - first) * self.choices / gaps

    def set_body(self, body: Any) -> None:
        """Record the requested model."""
        model = body.get("model") if isinstance(body, dict) else None
        if isinstance(model, str):
            self.requested_model = model

    def set_rejection(self, reason: str, param: str | None) -> None:
        """Record why the request was rejected."""
        self.reason, self.param = reason, param

    def on_placed(self, session: "WorkerSession", submission: "Submission", sequences: int) -> None:
        """Record a worker that it, or a part of it, is placed on."""
        if self.placed_at is None:
            self.placed_at, self.session = time.monotonic(), session
        if session.address not in self.workers:
            self.workers.append(session.address)


@value_class
class PrefixDivergence:
    """Where a prompt left the last one of its session."""

    cause: PrefixCause
    message: int | None = None
    """Position of the first message that differs; None if all are as they were, or the prompt has none."""
    text: str = ""
    """A part of that message around the first difference, or of the prompt: the client's own words, or a template's."""
    token: int = 0
    """How many tokens the two prompts have in common, in whole blocks."""


class RequestListener(Protocol):
    """A subscriber to the end of requests."""

    def on_end(self, record: RequestRecord) -> None:
        """Called when a request has ended, with its complete record."""


@runtime_checkable
class StartListener(RequestListener, Protocol):
    """A subscriber to the start of requests too."""

    def on_start(self, record: RequestRecord) -> None:
        """Called when a request arrives."""


def trace_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return traceparent and tracestate of a request; empty without a valid traceparent."""
    given = {
        name.decode(): value.decode("latin-1") for name, value in headers if name in (b"traceparent", b"tracestate")
    }
    if not _TRACEPARENT.fullmatch(given.get("traceparent", "")):
        return {}
    if len(given.get("tracestate", "")) > _MAX_TRACE_STATE:
        del given["tracestate"]
    return given
