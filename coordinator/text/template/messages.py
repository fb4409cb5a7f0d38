"""Converts OpenAI messages to the conversation that a chat template gets, as vLLM does for text."""

import json
import logging
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from tokenwire.coordinator.text.template.content_format import ContentFormat
from tokenwire.coordinator.text.template.pictures import PICTURE_TYPES, PicturePart
from tokenwire.errors import InvalidRequest, Malformed

log = logging.getLogger(__name__)

ChatMessage = dict[str, Any]

MAX_MESSAGES = 10_000
# Roles whose content may be null.
_MAY_BE_EMPTY = frozenset({"assistant", "function"})

# Types of text parts, and the field of the text.
_TEXT_FIELDS = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "thinking": "thinking",
}
_MEDIA = (
    *(*PICTURE_TYPES, "image_pil", "audio_url", "input_audio", "audio_embeds"),
    *("video_url", "video_embeds", "prompt_embeds", "file"),
)
# Fields handled here; all others are passed to the template with the text.
_OWN_FIELDS = frozenset(
    {*_MEDIA, "closed", "data", "name", "prompt_cache_breakpoint", "refusal", "text", "thinking", "type", "uuid"}
)
_BILLING_NAME = "x-anthropic-billing-header:"
_LINE_ENDS = "\r\n\x85\u2028\u2029"
_BILLING_HEADER = re.compile(f"(?<![^{_LINE_ENDS}]){_BILLING_NAME}[^{_LINE_ENDS}]*(\r\n|[{_LINE_ENDS}])?")


def extra_fields(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a part that are for the template."""
    return {name: value for name, value in part.items() if name not in _OWN_FIELDS}


def parse_messages(messages: object, content_format: ContentFormat) -> list[ChatMessage]:
    """Check messages and convert them to the template's form. Raises an InvalidRequest that names the message."""
    if not isinstance(messages, list | Sequence) or isinstance(messages, str | bytes):
        raise Malformed("messages must be a list.", param="messages")
    if len(messages) > MAX_MESSAGES:
        raise InvalidRequest(f"There are {len(messages)} messages, more than {MAX_MESSAGES}.", param="messages")
    return [_parse(message, f"messages[{i}]", content_format) for i, message in enumerate(messages)]


def developer_as_system(messages: Iterable[ChatMessage]) -> list[ChatMessage]:
    """Convert developer messages, which the template does not handle, to system messages, and merge these."""
    conversation = list(messages)
    if "developer" not in [message["role"] for message in conversation]:
        return conversation
    converted = [
        {name: value for name, value in message.items() if name != "tools"} | {"role": "system"}
        if message["role"] == "developer"
        else message
        for message in conversation
    ]
    system = [message for message in converted if message["role"] == "system"]
    if len(system) == 1 and converted[0] is system[0]:
        return converted
    # Many templates accept only a leading system message.
    texts = [text for message in system if (text := _text(message.get("content")))]
    rest = [message for message in converted if message["role"] != "system"]
    return [{"role": "system", "content": "\n\n".join(texts)}, *rest]


def _text(content: object) -> str:
    if isinstance(content, list):
        return join_texts(content)
    return content if isinstance(content, str) else ""


def _parse(message: object, where: str, content_format: ContentFormat) -> ChatMessage:
    if not isinstance(message, dict | Mapping):
        raise Malformed(f"{where} must be an object.", param="messages")
    role = message.get("role")
    if not isinstance(role, str):
        raise Malformed(f"{where}.role is required and must be a string.", param="messages")
    if "content" in message and message["content"] is None and role not in _MAY_BE_EMPTY:
        raise Malformed(f"{where}.content must not be null for the role {role!r}.", param="messages")
    result: ChatMessage = {"role": role, "content": parse_content(message.get("content"), role, where, content_format)}
    if role == "assistant":
        _add_assistant_fields(result, message, where)
    elif role == "tool" and "tool_call_id" in message:
        result["tool_call_id"] = message["tool_call_id"]
    for name in ("name", "task"):
        value = message.get(name)
        if value is not None and not isinstance(value, str):
            raise Malformed(f"{where}.{name} must be a string.", param="messages")
        if value is not None:
            result[name] = value
    if role == "developer":
        result["tools"] = message.get("tools")
    return result


def parse_content(content: object, role: str, where: str, form: ContentFormat) -> str | list[dict[str, Any]]:
    """Convert a message's content. Raises an InvalidRequest that names the part."""
    if isinstance(content, str) and form == "string" and role != "system":
        return content  # most messages: converting it would change nothing
    if content is None:
        content = []
    elif isinstance(content, str):
        content = [content]
    elif not isinstance(content, list | tuple):
        raise Malformed(f"{where}.content must be a string or a list of parts.", param="messages")
    parsed = [_parse_part(part, f"{where}.content[{i}]") for i, part in enumerate(content)]
    parts = [part for part in parsed if part is not None]
    if form == "string":
        parts = [part for part in parts if part.get("text") != ""]  # as vLLM, which joins no empty lines
        if any(isinstance(part, PicturePart) for part in content):
            return _with_placeholders(content, parts, role)
    if role == "system":
        parts = [part for part in map(_without_billing_header, parts) if part is not None]
    # Tool results are a string in every template, except references that only templates can expand.
    if form == "openai" and not (role == "tool" and all(part["type"] == "text" for part in parts)):
        return parts
    return join_texts(parts)


def without_billing_header(text: str) -> str:
    """Return a system prompt without the line of Claude Code's billing header, wherever it stands.

    It is the first one, unless a proxy puts others before it. The header has a hash that changes with every request
    and would invalidate all cached prefixes.
    """
    return _BILLING_HEADER.sub("", text) if _BILLING_NAME in text else text


def join_texts(parts: Collection[Mapping[str, Any]]) -> str:
    """Join the texts of parts with newlines. Raises InvalidRequest for a picture, which has none."""
    if any(part.get("type") == "image" for part in parts):
        raise InvalidRequest("Developer messages of this model must not have pictures.", param="messages")
    return "\n".join(part["text"] if "text" in part else part["name"] for part in parts)


def _with_placeholders(content: Iterable[object], parts: Iterable[dict[str, Any]], role: str) -> str:
    """Join texts after the placeholders of pictures that they do not have themselves, as vLLM does."""
    texts = [part for part in parts if part["type"] != "image"]
    if role == "system":
        texts = [part for part in map(_without_billing_header, texts) if part is not None]
    text = join_texts(texts)
    counts = Counter(part.placeholder for part in content if isinstance(part, PicturePart) and part.placeholder)
    missing: list[str] = []
    for placeholder, count in counts.items():
        lacking = count - text.count(placeholder)
        if lacking < 0:
            raise InvalidRequest(
                f"Found more '{placeholder}' placeholders in input prompt than actual multimodal data items.",
                param="messages",
            )
        missing += [placeholder] * lacking
    return "\n".join([*missing, text] if text else missing)


def _parse_part(part: object, where: str) -> dict[str, Any] | None:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if isinstance(part, PicturePart):
        return {"type": "image", **part.extra}
    if not isinstance(part, Mapping):
        raise InvalidRequest(f"{where} must be an object or a string.", param="messages")
    kind = part.get("type")
    if kind == "tool_reference":
        return {"type": kind, "name": _string(part.get("name"), f"{where}.name")}
    field = _TEXT_FIELDS.get(kind) if isinstance(kind, str) else None
    if field is None:
        _reject(part, kind, where)
    if part.get(field) is None and kind in ("text", "refusal"):
        return None
    return {"type": "text", "text": _string(part.get(field), f"{where}.{field}"), **extra_fields(part)}


def _string(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise InvalidRequest(f"{where} must be a string.", param="messages")
    return value


def _reject(part: Mapping[str, Any], kind: object, where: str) -> NoReturn:
    if kind is None:
        kind = next((name for name in _MEDIA if name in part), None)
    if kind is None:
        raise InvalidRequest(f"{where}.type is required.", param="messages")
    if kind in PICTURE_TYPES:
        others = "in other APIs: input_image, image"  # whose parts were translated
        raise InvalidRequest(
            f"{where} is of type {kind!r} ({others}), but this model takes text only.", param="messages"
        )
    if kind in _MEDIA:
        raise InvalidRequest(f"{where} is of type {kind!r}, which this server does not take.", param="messages")
    supported = ", ".join([*_TEXT_FIELDS, "tool_reference"])
    raise InvalidRequest(f"{where} is of the unknown type {kind!r}. Supported types: {supported}.", param="messages")


def _without_billing_header(part: dict[str, Any]) -> dict[str, Any] | None:
    if part["type"] != "text" or (rest := without_billing_header(part["text"])) == part["text"]:
        return part
    return part | {"text": rest} if rest else None


def _add_assistant_fields(result: ChatMessage, message: Mapping[str, Any], where: str) -> None:
    calls = message.get("tool_calls")
    if calls is not None and not isinstance(calls, list | tuple):
        raise Malformed(f"{where}.tool_calls must be a list.", param="messages")
    if calls:
        result["tool_calls"] = [_tool_call(call, f"{where}.tool_calls[{i}]") for i, call in enumerate(calls)]
    reasoning = message.get("reasoning")
    if reasoning is None:
        reasoning = message.get("reasoning_content")
    if reasoning is not None:
        if not isinstance(reasoning, str):
            raise Malformed(f"{where}.reasoning must be a string.", param="messages")
        # Templates use either name.
        result["reasoning"] = result["reasoning_content"] = reasoning


def _tool_call(call: object, where: str) -> dict[str, Any]:
    if not isinstance(call, Mapping):
        raise Malformed(f"{where} must be an object.", param="messages")
    function = call.get("function")
    if call.get("type", "function") != "function" or not isinstance(function, Mapping):
        raise Malformed(f"{where} must be of type 'function', with a function.", param="messages")
    if not isinstance(function.get("name"), str):
        raise Malformed(f"{where}.function.name is required and must be a string.", param="messages")
    arguments = parse_arguments(function.get("arguments"), where)
    # In vLLM's order, because templates render these objects as JSON.
    return _ordered(call, ("id", "function", "type")) | {
        "function": _ordered({**function, "arguments": arguments}, ("arguments", "name"))
    }


def parse_arguments(value: object, where: str) -> dict[str, Any]:
    """Return arguments as an object. Invalid ones are from an earlier turn and must not end the conversation."""
    if isinstance(value, str) and value:
        try:
            value = json.loads(value)
        except ValueError:
            log.warning("%s has arguments that are not JSON; using none", where)
            return {}
    return dict(value) if isinstance(value, Mapping) else {}


def _ordered(fields: Mapping[str, Any], first: tuple[str, ...]) -> dict[str, Any]:
    return {name: fields[name] for name in first if name in fields} | dict(fields)
