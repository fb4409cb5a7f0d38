"""The request log: one line for each finished request."""

import logging
import re
import time
from typing import Any

from tokenwire.coordinator.observability.record import PrefixDivergence, RequestRecord
from tokenwire.errors import InvalidRequest

log = logging.getLogger(__name__)

_MAX_CHARS = 200
"""Limit of values chosen by clients."""
_MAX_REASON_CHARS = 2000
_MAX_PROMPT_CHARS = 16 * 1024
_READ_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# Text of clients, which may be prompts: between quotes, or after an opening quote that is never closed.
_QUOTED = re.compile(r"""(?<!\w)(['"])((?:\\.|(?!\1(?!\w)).)*)(?:\1|\Z)""", re.DOTALL)
_SIGNS = re.compile(r"\W{0,2}")


class RequestLog:
    """A listener that logs all requests but reads. It has its own option, so it logs at any log level."""

    def __init__(self, public_words: frozenset[str]) -> None:
        """`public_words` are the API's own, which errors may quote."""
        self._public_words = public_words
        self._blank = vars(log.makeRecord(log.name, logging.INFO, "", 0, "request", (), None))
        log.setLevel(logging.INFO)

    def on_end(self, record: RequestRecord) -> None:
        """Log a finished request."""
        if record.method not in _READ_METHODS:
            # What log.info does, without a search of the stack for the line that called it, which no format shows.
            line = logging.LogRecord.__new__(logging.LogRecord)
            vars(line).update(self._blank, created=time.time(), fields=fields_of(record, self._public_words))
            log.handle(line)


def fields_of(record: RequestRecord, public_words: frozenset[str]) -> dict[str, Any]:
    """Return the fields of a request's line, without those that it did not reach, and without texts of clients."""
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
            fields["finish"] = ",".join([finish.reason for finish in record.finishes[:16]])
        if record.divergence is not None:
            fields |= _prefix_fields(record.divergence, record.keeps_prompt)
        for name, seconds in (("queue_ms", record.queue_s), ("ttft_ms", record.first_token_s)):
            if seconds is not None:
                fields[name] = round(1000 * seconds, 1)
    elif record.requested_model:
        fields["model"] = record.requested_model[:_MAX_CHARS]
    fields["total_ms"] = round(1000 * record.duration_s, 1)
    if record.reason:
        fields["error"] = _without_texts(record.reason, public_words)
    if record.param is not None:
        fields["param"] = record.param[:_MAX_CHARS]
    if record.error is not None:
        quotes_client = isinstance(record.error, InvalidRequest)  # a worker's, in the engine's own words
        message = record.error.message
        fields["error"] = _without_texts(message, public_words) if quotes_client else message[:_MAX_CHARS]
    if record.prompt is not None:
        fields["prompt"] = record.prompt[:_MAX_PROMPT_CHARS]
    return fields


def _prefix_fields(divergence: PrefixDivergence, with_text: bool) -> dict[str, Any]:
    """Return the fields of where a prompt left the last one of its session."""
    fields: dict[str, Any] = {"prefix": divergence.cause, "prefix_tokens": divergence.token}
    if divergence.message is not None:
        fields["prefix_message"] = divergence.message
    if with_text and divergence.text:
        fields["prefix_text"] = divergence.text
    return fields


def _without_texts(reason: str, public_words: frozenset[str]) -> str:
    """Mask what may be a client's text: all that is quoted but words of the API and single symbols."""

    def masked(quoted: re.Match[str]) -> str:
        return quoted[0] if quoted[2] in public_words or _SIGNS.fullmatch(quoted[2]) else "'...'"

    return _QUOTED.sub(masked, reason[:_MAX_REASON_CHARS])[:_MAX_CHARS]
