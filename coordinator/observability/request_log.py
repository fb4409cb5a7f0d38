"""The request log: one line for each finished request."""

import logging
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Literal, get_args, get_origin

from tokenwire.coordinator.observability.record import RequestRecord
from tokenwire.coordinator.parsing.request_model import RequestModel
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
_OTHER_WORDS = frozenset(
    {
        *("application/json", "prompt_token_ids", "required", "tool_reference", "tool_result", "tool_use"),
        # Types of content parts and tools that are rejected by name.
        *("image", "image_url", "input_image", "image_pil", "image_embeds", "audio_url", "input_audio", "audio_embeds"),
        *("video_url", "video_embeds", "prompt_embeds", "document", "file", "input_file", "search_result"),
        *("custom", "web_search", "file_search", "computer_use_preview", "code_interpreter", "image_generation", "mcp"),
        # Types of JSON and of Python that appear in error messages.
        *("str", "int", "float", "bool", "list", "dict", "NoneType", "null", "true", "false", "True", "False", "None"),
    }
)
"""Words of the API that are no fields, nor values of any."""


class RequestLog:
    """A listener that logs all requests but reads. It has its own option, so it logs at any log level."""

    def __init__(self) -> None:
        log.setLevel(logging.INFO)

    def on_end(self, record: RequestRecord) -> None:
        """Log a finished request."""
        if record.method not in _READ_METHODS:
            log.info("request", extra={"fields": fields_of(record)})


def fields_of(record: RequestRecord) -> dict[str, Any]:
    """Return the fields of a request's line, without those that it did not reach."""
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
        quotes_client = isinstance(record.error, InvalidRequest)  # a worker's, in the engine's own words
        message = record.error.message
        fields["error"] = _without_texts(message) if quotes_client else message[:_MAX_CHARS]
    if record.prompt is not None:
        fields["prompt"] = record.prompt[:_MAX_PROMPT_CHARS]
    return fields


def _without_texts(reason: str) -> str:
    return _QUOTED.sub(_masked, reason[:_MAX_REASON_CHARS])[:_MAX_CHARS]


def _masked(quoted: re.Match[str]) -> str:
    """Mask text that may be a client's: all but words of the API and single symbols."""
    text = quoted[2]
    return quoted[0] if text in public_words() or _SIGNS.fullmatch(text) else "'...'"


def _milliseconds(seconds: float) -> float:
    return round(1000 * seconds, 1)


@cache
def public_words() -> frozenset[str]:
    """Return the API's own words, which are no client's text: names of fields, and their literal values."""
    return frozenset(_words(RequestModel)) | _OTHER_WORDS


def _words(model: type[RequestModel]) -> Iterator[str]:
    for child in model.__subclasses__():
        yield from _words(child)
        for name, field in child.model_fields.items():
            yield from (name, field.alias or name)
            yield from _options(field.annotation)


def _options(annotation: Any) -> Iterator[str]:
    for part in get_args(annotation):
        if get_origin(annotation) is not Literal:
            yield from _options(part)
        elif isinstance(part, str):
            yield part
