"""Keys of conversations: a digest of each message and all before it, equal if a template would render the same.

Insignificant differences between clients are ignored: empty content and none, text and a list of one text,
the order of keys in tool arguments and what these have of their tool's defaults, the ids of an assistant's tool calls.
Reasoning is not in the chain, because many clients drop it; see Transcript.reasoning.
"""

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

from tokenwire.coordinator.text.template.content_format import ContentFormat
from tokenwire.coordinator.text.template.messages import parse_content
from tokenwire.coordinator.text.template.pictures import PicturePart

_DIGEST_BYTES = 16

# What templates may use besides role, content and tool calls.
_MORE = ("name", "task", "tool_call_id", "tools")
_PLAIN = {"role", "content"}
_LEAST_WITH_EXPONENT = 1e21
"""As an integer, 1e300 would have 300 digits."""
_SCHEMA_LEVELS = 8
"""How deep a tool's schema is searched for defaults."""


def digest(*parts: object) -> bytes:
    """Return a digest of JSON values that ignores the order of keys."""
    return blake2b(_json(parts).encode(errors="surrogatepass"), digest_size=_DIGEST_BYTES).digest()


class Transcript:
    """The keys of a request's messages: one for each assistant message, of the conversation up to it."""

    __slots__ = ("_digests", "_hasher", "_schemas", "form", "length", "reasoning", "replies", "scope")

    def __init__(
        self,
        scope: bytes,
        messages: Sequence[Mapping[str, Any]],
        form: ContentFormat,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """`scope`: a digest of everything else that must be equal, also of the tools. Raises InvalidRequest."""
        self.scope = scope
        self.form = form
        self._schemas = _Schemas(tools)
        self._hasher = blake2b(scope, digest_size=_DIGEST_BYTES)
        self._digests: dict[int, bytes] = {}
        self.reasoning: dict[int, bytes] = {}
        """Digests of the messages' reasoning, by position."""
        self.length = len(messages)
        for position, message in enumerate(messages):
            self._hasher.update(_frame(message, position, form, self._schemas))
            if message.get("role") == "assistant":
                self._digests[position] = self._hasher.digest()
                if (reasoning := reasoning_of(message)) is not None:
                    self.reasoning[position] = digest(reasoning)
        self.replies: Sequence[int] = [*reversed(self._digests)]
        """Positions of assistant messages, the last one first."""

    def key(self, position: int) -> bytes:
        """Return the key of the conversation up to an assistant message, including this message's reasoning."""
        return _with_reasoning(self._digests[position], self.reasoning.get(position))

    def reply_keys(self, reply: Sequence[Mapping[str, Any]]) -> list[bytes]:
        """Return the keys that a reply may have in later requests: without reasoning, and with the last message's."""
        hasher = self._hasher.copy()
        for position, message in enumerate(reply, self.length):
            hasher.update(_frame(message, position, self.form, self._schemas))
        bare = hasher.digest()
        reasoning = reasoning_of(reply[-1])
        return [bare] if reasoning is None else [bare, _with_reasoning(bare, digest(reasoning))]


class _Schemas:
    """The schemas of the tools' arguments, by name; looked at only if there are calls."""

    __slots__ = ("_by_name", "_tools")

    def __init__(self, tools: Sequence[Mapping[str, Any]] | None) -> None:
        self._tools = tools
        self._by_name: dict[object, object] | None = None if tools else {}

    def of(self, name: object) -> object:
        """Return the schema of a tool's arguments, None if there is none."""
        if self._by_name is None:
            functions = [tool["function"] for tool in self._tools or ()]
            self._by_name = {function["name"]: function.get("parameters") for function in functions}
        return self._by_name.get(name) if isinstance(name, str) else None


_NO_SCHEMAS = _Schemas(None)


def reasoning_digest(message: Mapping[str, Any]) -> bytes | None:
    """Return the digest of a message's reasoning, None if it has none."""
    reasoning = reasoning_of(message)
    return None if reasoning is None else digest(reasoning)


def _with_reasoning(bare: bytes, reasoning: bytes | None) -> bytes:
    return bare if reasoning is None else blake2b(bare + reasoning, digest_size=_DIGEST_BYTES).digest()


def reasoning_of(message: Mapping[str, Any]) -> str | None:
    """Return a message's reasoning under either of its names, None if it has none."""
    reasoning = message.get("reasoning")
    if reasoning is None:
        reasoning = message.get("reasoning_content")
    return reasoning if isinstance(reasoning, str) and reasoning else None


def message_text(message: Mapping[str, Any], position: int, form: ContentFormat) -> str:
    """Return what of a message, besides its role, a template may render, as one text. Raises InvalidRequest."""
    content = _content_of(message, position, form)
    more = "" if message.keys() == _PLAIN else _more(message, _NO_SCHEMAS)
    return f"{content}\n{more}" if more else content


def text_hash(message: Mapping[str, Any], position: int, form: ContentFormat) -> int:
    """Return a hash of a message's text in this process, which clients may have stripped. Raises InvalidRequest."""
    return hash(message_text(message, position, form).strip())


def picture_digests(message: Mapping[str, Any]) -> Sequence[bytes]:
    """Return the digests of a message's pictures."""
    content = message.get("content")
    return [part.digest for part in content if isinstance(part, PicturePart)] if isinstance(content, list) else ()


def _frame(message: Mapping[str, Any], position: int, form: ContentFormat, schemas: _Schemas) -> bytes:
    """Return a message's bytes in the chain, prefixed with their length, so that no two chains are ambiguous."""
    content = _content_of(message, position, form)
    more = "" if message.keys() == _PLAIN else _more(message, schemas)
    body = f"{content}\n{more}"
    if isinstance(message.get("content"), list):
        body += "".join([f"\n{each.hex()}" for each in picture_digests(message)])
    return f"{message.get('role')}:{len(content)}:{len(body)}:{body}".encode(errors="surrogatepass")


def _content_of(message: Mapping[str, Any], position: int, form: ContentFormat) -> str:
    role, content = message.get("role"), message.get("content")
    if isinstance(content, str) and role != "system":
        return content
    return _content(parse_content(content, str(role), f"messages[{position}]", form))


def _more(message: Mapping[str, Any], schemas: _Schemas) -> str:
    more = {name: value for name in _MORE if (value := message.get(name)) is not None}
    if calls := message.get("tool_calls"):
        more["tool_calls"] = [_call(call, schemas) for call in calls] if isinstance(calls, list | tuple) else calls
    return _json(more) if more else ""


def _content(content: str | list[dict[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    if not content:
        return ""
    if len(content) == 1 and content[0].keys() == {"type", "text"}:
        return str(content[0]["text"])
    return _json(content)


def _call(call: object, schemas: _Schemas) -> object:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return call
    given = {name: value for name, value in function.items() if value is not None}
    arguments = _without_defaults(_arguments(given.get("arguments")), schemas.of(given.get("name")), _SCHEMA_LEVELS)
    return {**given, "arguments": arguments}


def _without_defaults(value: object, schema: object, levels: int) -> object:
    """Return a value without the properties that have their schema's defaults: some clients add them to calls."""
    if not levels or not isinstance(schema, Mapping):
        return value
    if isinstance(value, Mapping) and isinstance(properties := schema.get("properties"), Mapping):
        return {
            name: _without_defaults(each, properties.get(name), levels - 1)
            for name, each in value.items()
            if not _is_default(each, properties.get(name))
        }
    items = schema.get("items")
    if isinstance(value, list) and isinstance(items, Mapping) and ("properties" in items or "items" in items):
        return [_without_defaults(each, items, levels - 1) for each in value]
    return value


def _is_default(value: object, schema: object) -> bool:
    if not isinstance(schema, Mapping) or "default" not in schema or value != schema["default"]:
        return False
    return _canonical(value) == _canonical(schema["default"])  # to Python, 1 is true


def _canonical(value: object) -> str:
    return _json(_arguments(_json(value)))


def _arguments(arguments: object) -> object:
    """Return arguments as a JSON value; text that is not JSON is returned unchanged."""
    if not arguments:
        return {}
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments, parse_float=_number)
    except ValueError:
        return arguments


def _number(text: str) -> float | int:
    """Parse a number as JavaScript does, where 1.0 is 1. Like JavaScript's, large ones keep their exponent."""
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < _LEAST_WITH_EXPONENT else number


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=_bytes_as_hex)


def _bytes_as_hex(value: object) -> str:
    if isinstance(value, bytes):
        return value.hex()
    raise TypeError(f"{type(value).__name__} is not JSON")
