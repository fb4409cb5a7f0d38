"""Converts a message's content, text or parts of text, to the form that a chat template expects."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from tokenwire.coordinator.text.template.content_format import ContentFormat
from tokenwire.errors import InvalidRequest, Malformed

# Types of text parts, and the field of the text.
_TEXT_FIELDS = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "thinking": "thinking",
}
_MEDIA = (
    *("image_url", "input_image", "image_pil", "image_embeds", "audio_url", "input_audio", "audio_embeds"),
    *("video_url", "video_embeds", "prompt_embeds", "file"),
)
# Fields handled here; all others are passed to the template with the text.
_OWN_FIELDS = frozenset(
    {*_MEDIA, "closed", "data", "name", "prompt_cache_breakpoint", "refusal", "text", "thinking", "type", "uuid"}
)
_BILLING_HEADER = re.compile("x-anthropic-billing-header:[^\r\n\x85\u2028\u2029]*(\r\n|[\r\n\x85\u2028\u2029])?")


def parse_content(content: object, role: str, where: str, form: ContentFormat) -> str | list[dict[str, Any]]:
    """Convert a message's content. Raises an InvalidRequest that names the part."""
    if content is None:
        content = []
    elif isinstance(content, str):
        content = [content]
    elif not isinstance(content, list | tuple):
        raise Malformed(f"{where}.content must be a string or a list of parts.", param="messages")
    parsed = [_parse_part(part, f"{where}.content[{i}]") for i, part in enumerate(content)]
    parts = [part for part in parsed if part is not None]
    if role == "system":
        parts = [part for part in map(_without_billing_header, parts) if part is not None]
    # Tool results are a string in every template, except references that only templates can expand.
    if form == "openai" and not (role == "tool" and all(part["type"] == "text" for part in parts)):
        return parts
    return join_texts(parts)


def without_billing_header(text: str) -> str:
    """Return a system prompt without the billing header that Claude Code puts in its first line.

    The header has a hash that changes with every request and would invalidate all cached prefixes.
    """
    line = _BILLING_HEADER.match(text)
    return text if line is None else text[line.end() :]


def join_texts(parts: Iterable[Mapping[str, Any]]) -> str:
    """Join the texts of parts with newlines."""
    return "\n".join(part["text"] if "text" in part else part["name"] for part in parts)


def _parse_part(part: object, where: str) -> dict[str, Any] | None:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if not isinstance(part, Mapping):
        raise InvalidRequest(f"{where} must be an object or a string.", param="messages")
    kind = part.get("type")
    if kind == "tool_reference":
        return {"type": kind, "name": _string(part.get("name"), f"{where}.name")}
    field = _TEXT_FIELDS.get(kind) if isinstance(kind, str) else None
    if field is None:
        _refuse(part, kind, where)
    if part.get(field) is None and kind in ("text", "refusal"):
        return None
    extra = {name: value for name, value in part.items() if name not in _OWN_FIELDS}
    return {"type": "text", "text": _string(part.get(field), f"{where}.{field}"), **extra}


def _string(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise InvalidRequest(f"{where} must be a string.", param="messages")
    return value


def _refuse(part: Mapping[str, Any], kind: object, where: str) -> NoReturn:
    if kind is None:
        kind = next((name for name in _MEDIA if name in part), None)
    if kind is None:
        raise InvalidRequest(f"{where}.type is required.", param="messages")
    if kind in _MEDIA:
        raise InvalidRequest(f"{where} is of type {kind!r}, but this server takes text only.", param="messages")
    supported = ", ".join([*_TEXT_FIELDS, "tool_reference"])
    raise InvalidRequest(f"{where} is of the unknown type {kind!r}. Supported types: {supported}.", param="messages")


def _without_billing_header(part: dict[str, Any]) -> dict[str, Any] | None:
    if part["type"] != "text" or (rest := without_billing_header(part["text"])) == part["text"]:
        return part
    return part | {"text": rest} if rest else None
