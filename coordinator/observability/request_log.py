"""Logs a line for each request that has ended: what it was, what it took, what became of it."""

import logging
import re
from typing import Any

from tokenwire.coordinator.observability.public_words import public_words
from tokenwire.coordinator.observability.record import RequestRecord
from tokenwire.errors import InvalidRequest

log = logging.getLogger(__name__)

_MAX_CHARS = 200
"""Of what clients choose themselves."""
_MAX_REASON_CHARS = 2000
_MAX_PROMPT_CHARS = 16 * 1024
_LOOKS = frozenset({"GET", "HEAD", "OPTIONS"})
# Texts of clients, which may be prompts: what stands between quotes, or behind the last one that opens.
_QUOTED = re.compile(r"""(?<!\w)(['"])((?:\\.|(?!\1(?!\w)).)*)(?:\1|\Z)""", re.DOTALL)
_SIGNS = re.compile(r"\W{0,2}")


class RequestLog:
    """Hears of requests. Those that only look at something are not logged.

    It has a switch of its own, so the log's level is not asked.
    """

    def __init__(self) -> None:
        log.setLevel(logging.INFO)

    def on_start(self, record: RequestRecord) -> None:
        """Nothing to say yet."""

    def on_end(self, record: RequestRecord) -> None:
        """Say what became of it."""
        if record.method not in _LOOKS:
            log.info("request", extra={"fields": fields_of(record)})


def fields_of(record: RequestRecord) -> dict[str, Any]:
    """Return what is known of a request; nothing about what it did not get to."""
    fields: dict[str, Any] = {"outcome": record.outcome, "status": record.status, "route": record.route}
    if record.tenant:
        fields["tenant"] = record.tenant
    if record.generates:
        fields["request_id"] = record.request_id[:_MAX_CHARS]
        fields["model"] = record.model
        fields["worker"] = ",".join(record.workers)
        fields["prompt_tokens"] = record.prompt_tokens
        fields["cached_tokens"] = record.cached_tokens
        fields["completion_tokens"] = record.completion_tokens
        if record.finishes:
            fields["finish"] = ",".join(finish.reason for finish in record.finishes[:16])
        times = (("queue_ms", record.queue_s), ("ttft_ms", record.first_token_s))
        fields |= {name: _milliseconds(seconds) for name, seconds in times if seconds is not None}
    elif record.requested_model:
        fields["model"] = record.requested_model[:_MAX_CHARS]
    fields["total_ms"] = _milliseconds(record.duration_s)
    if record.reason:
        fields["error"] = _without_texts(record.reason)
    if record.param is not None:
        fields["param"] = record.param[:_MAX_CHARS]
    if record.error is not None:
        is_refusal = isinstance(record.error, InvalidRequest)  # a worker's, with the engine's own words
        message = record.error.message
        fields["error"] = _without_texts(message) if is_refusal else message[:_MAX_CHARS]
    if record.prompt is not None:
        fields["prompt"] = record.prompt[:_MAX_PROMPT_CHARS]
    return fields


def _without_texts(reason: str) -> str:
    return _QUOTED.sub(_masked, reason[:_MAX_REASON_CHARS])[:_MAX_CHARS]


def _masked(quoted: re.Match[str]) -> str:
    """Leave out what may be a client's: all but words of the API and single signs."""
    text = quoted[2]
    return quoted[0] if text in public_words() or _SIGNS.fullmatch(text) else "'...'"


def _milliseconds(seconds: float) -> float:
    return round(1000 * seconds, 1)
