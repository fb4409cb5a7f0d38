"""One request, as metrics, logs and traces see it: filled in on the way, read at its end."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from tokenwire.coordinator.types import Finish
from tokenwire.errors import TokenwireError

Outcome = Literal["ok", "invalid", "refused", "unavailable", "error", "deadline", "client_left", "client_slow"]
_OUTCOMES: dict[int, Outcome] = {
    408: "deadline",
    429: "refused",
    499: "client_left",
    503: "unavailable",
    504: "deadline",
}


@dataclass(slots=True)
class RequestRecord:
    """What is known of a request. Times are those of time.monotonic; None: it did not get there."""

    method: str = ""
    began_at: float = field(default_factory=time.monotonic)
    ended_at: float | None = None
    route: str = "none"
    """The template of its path; "none" for paths that there are not, and for requests that no route got."""
    status: int = 0
    """Of the response; 0 while there is none, 499 where its client left before."""
    trace_headers: dict[str, str] = field(default_factory=dict)
    """W3C trace context that workers get: the client's, or that of our own span."""
    tenant: str = ""
    request_id: str = ""
    """Empty for what generates nothing."""
    model: str = ""
    """First name of the model itself, also for its adapters."""
    keeps_prompt: bool = False
    """Whether somebody wants the prompt."""
    prompt: str | None = None
    """Text of the prompt, or of the first one, where somebody wants it."""
    choices: int = 0
    prompt_tokens: int = 0
    reused_tokens: int = 0
    """Prompt tokens that were taken from the history of chats."""
    cached_tokens: int = 0
    """Prompt tokens that workers had in their caches."""
    completion_tokens: int = 0
    workers: list[str] = field(default_factory=list)
    """Who got it, and who went on with it."""
    submitted_at: float | None = None
    placed_at: float | None = None
    """When a worker got it."""
    first_token_at: float | None = None
    last_token_at: float | None = None
    finishes: Sequence[Finish] = ()
    """Of the choices that came to their end."""
    error: TokenwireError | None = None
    """What a reply ended with that had begun."""
    requested_model: str = ""
    """The name that a refused request asked for, whatever a client put there: no label for metrics."""
    reason: str = ""
    """Why it was refused; the client's own text may stand in it, between quotes."""
    param: str | None = None
    """The field that was wrong."""
    client: Literal["", "client_left", "client_slow"] = ""
    """What the client did before it had the reply."""

    @property
    def generates(self) -> bool:
        """Whether it came as far as wanting tokens."""
        return bool(self.request_id)

    @property
    def outcome(self) -> Outcome:
        """What became of it."""
        if self.client:
            return self.client
        status = self.status if self.error is None else self.error.http_status
        if status in _OUTCOMES:
            return _OUTCOMES[status]
        return "ok" if status < 400 else "invalid" if status < 500 else "error"

    @property
    def duration_s(self) -> float:
        """How long it took."""
        return (time.monotonic() if self.ended_at is None else self.ended_at) - self.began_at

    @property
    def queue_s(self) -> float | None:
        """How long it waited for a worker."""
        return _between(self.submitted_at, self.placed_at)

    @property
    def first_token_s(self) -> float | None:
        """How long after its begin the first token came."""
        return _between(self.began_at, self.first_token_at)

    @property
    def per_token_s(self) -> float | None:
        """How long a choice took for each token after the first, on average."""
        whole, gaps = _between(self.first_token_at, self.last_token_at), self.completion_tokens - self.choices
        return None if whole is None or gaps <= 0 else whole * self.choices / gaps

    def set_body(self, body: Any) -> None:
        """Hear what was asked for."""
        model = body.get("model") if isinstance(body, dict) else None
        if isinstance(model, str):
            self.requested_model = model

    def set_refusal(self, reason: str, param: str | None) -> None:
        """Hear why there is no reply."""
        self.reason, self.param = reason, param

    def on_placed(self, address: str) -> None:
        """Hear which worker got it."""
        if self.placed_at is None:
            self.placed_at = time.monotonic()
        if address not in self.workers:
            self.workers.append(address)


class RequestListener(Protocol):
    """Whoever counts, logs or traces requests."""

    def on_start(self, record: RequestRecord) -> None:
        """A request has come."""

    def on_end(self, record: RequestRecord) -> None:
        """A request is over; its record is complete."""


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else end - start
