"""The API's own words, which are no client's text: logs and errors may quote them."""

from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from tokenwire.coordinator.observability.request_log import RequestLog
from tokenwire.coordinator.parsing.request_model import RequestModel

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


def request_log() -> RequestLog:
    """Return a log of requests that shows these words where it masks others."""
    return RequestLog(public_words())


def public_words() -> frozenset[str]:
    """Return names of fields, their literal values and other words, of the routes whose modules are imported."""
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
