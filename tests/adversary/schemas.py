"""Expensive grammars, tools and chats."""

import json
from functools import partial
from typing import Any

from tests.adversary.values import MIB, Value, entries, list_of, long_text, many, small, value_of
from tokenwire.coordinator.api.responses.compaction_item import MAX_CHARS, compaction_item

_WORDS = "hello world " * 4


def deep_schema(levels: int) -> dict[str, Any]:
    """Return a schema of objects within each other."""
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


def wide_schema(fields: int, lengths: bool = False) -> dict[str, Any]:
    """Return a schema with so many properties."""
    return {
        "type": "object",
        "properties": {f"p{i}": {"type": "string", **({"maxLength": i + 1} if lengths else {})} for i in range(fields)},
    }


SCHEMAS = {
    "30 levels": deep_schema(30),
    "5,000 properties": wide_schema(5_000),
    "250 lengths": wide_schema(250, lengths=True),
    "10,000 alternatives": {"anyOf": [{"const": f"c{i}"} for i in range(10_000)]},
}
_CONSTRAINTS: dict[str, dict[str, Any]] = {
    **{f"schema of {name}": {"json": schema} for name, schema in SCHEMAS.items()},
    "schema as text": {"json": json.dumps(wide_schema(5_000))},
    "32 KB of regex": {"regex": "(a|b)" * 6_500},
    "repetitions": {"regex": "a{1,400}" * 250},
    "10,000 choices": {"choice": [f"choice {i}" for i in range(10_000)]},
    "250 KB of grammar": {"grammar": "root ::= " + " | ".join(f'"a{i}"' for i in range(20_000))},
    "any object": {
        **{"json_object": True, "disable_any_whitespace": True, "disable_additional_properties": True},
        "whitespace_pattern": " " * 32_000,
    },
    "structural tag": {
        "structural_tag": json.dumps({"type": "structural_tag", "format": {"type": "json_schema", "json_schema": {}}})
    },
}
STRUCTURED_OUTPUTS = [value_of(name, value) for name, value in _CONSTRAINTS.items()]


def _json_schema(schema: dict[str, Any]) -> dict[str, Any]:
    described = {"name": "s", "description": "d" * 10_000, "schema": schema, "strict": True}
    return {"type": "json_schema", "json_schema": described}


RESPONSE_FORMATS = [
    *(value_of(f"schema of {name}", _json_schema(schema)) for name, schema in SCHEMAS.items()),
    *small({"type": "json_object"}),
]
TEXT_FORMATS = [
    value_of(
        f"schema of {name}",
        {"verbosity": "low", "format": {**_json_schema(schema)["json_schema"], "type": "json_schema"}},
    )
    for name, schema in SCHEMAS.items()
]
OUTPUT_CONFIGS = [
    value_of(f"schema of {name}", {"effort": "max", "format": {"type": "json_schema", "schema": schema}})
    for name, schema in SCHEMAS.items()
]

_FUNCTION = {"name": "f", "description": _WORDS, "parameters": wide_schema(20), "strict": True, "defer_loading": False}
_ANTHROPIC = {"type": "custom", "name": "f", "description": _WORDS, "input_schema": wide_schema(20), "strict": True}
_TOOL = {"type": "function", "function": _FUNCTION, "defer_loading": False}
_SIZES = (100, 1_024)


def _tools(tool: dict[str, Any]) -> list[Value]:
    return [many(count, "tools", json.dumps(tool)) for count in _SIZES]


CHAT_TOOLS = _tools(_TOOL)
RESPONSES_TOOLS = [
    *_tools({"type": "function", **_FUNCTION}),
    *_tools({"type": "custom", "name": "f", "description": _WORDS}),
    *_tools({"type": "namespace", "name": "n", "tools": [{"type": "function", **_FUNCTION}]}),
]
ANTHROPIC_TOOLS = [
    *_tools({**_ANTHROPIC, "defer_loading": False}),
    *_tools({"type": "web_search_20250305", "name": "web_search"}),
]

_USER = {"role": "user", "content": "hi"}


def _talk(turns: int, content: Any) -> str:
    user, assistant = ({"role": role, "content": content} for role in ("user", "assistant"))
    pair = f"{json.dumps(user)},{json.dumps(assistant)}"
    return "[" + ",".join([*[pair] * turns, json.dumps(_USER)]) + "]"


def _big(size: int) -> str:
    return json.dumps([{"role": "user", "content": "hello world " * (size * MIB // 12)}])


def _parts(count: int) -> str:
    part = json.dumps({"type": "text", "text": "hi"})
    return f'[{{"role":"user","content":{list_of(part, count)}}}]'


def _calls(count: int, arguments: str) -> str:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    message = f'{{"role":"assistant","content":"x","tool_calls":{list_of(json.dumps(call), count)}}}'
    return f"[{json.dumps(_USER)},{message},{json.dumps(_USER)}]"


TALKS = [
    *(Value(f"{2 * turns:,} messages", partial(_talk, turns, "hi")) for turns in (100, 1_000, 4_900)),
    *(Value(f"a message of {size} MB", partial(_big, size)) for size in (1, 30)),
    Value("100 messages of 300 KB", lambda: _talk(50, "hello world " * 25_000)),
    Value("60,000 parts of a message", lambda: _parts(60_000)),
    Value("20,000 fields of a message", lambda: f'[{{"role":"user","content":"x","more":{entries(20_000, "[]")}}}]'),
]
"""Messages of chats that every route takes."""


def _with_ids(count: int) -> str:
    reply = {"role": "assistant", "content": "x", "prompt_token_ids": [7] * count, "generation_token_ids": [8] * count}
    return json.dumps([_USER, {**reply, "generation_log_probs": [0.5] * count}, _USER])


CHATS = [
    *TALKS,
    Value("20,000 tool calls", lambda: _calls(20_000, "{}")),
    Value("a tool call of 20 MB", lambda: _calls(1, json.dumps({"a": "x" * (20 * MIB)}))),
    Value("a tool call of 100,000 fields", lambda: _calls(1, entries(100_000, "1"))),
    Value("15,000 ids on a message", lambda: _with_ids(15_000)),
    Value("1,000,000 ids on a message", lambda: _with_ids(1_000_000)),
]


def _blocks(block: dict[str, Any], role: str, count: int) -> str:
    message = f'{{"role":"{role}","content":{list_of(json.dumps(block), count)}}}'
    return f"[{json.dumps(_USER)},{message},{json.dumps(_USER)}]"


ANTHROPIC_CHATS = [
    *TALKS,
    Value("20,000 thoughts", lambda: _blocks({"type": "thinking", "thinking": "hm"}, "assistant", 20_000)),
    Value(
        "20,000 uses", lambda: _blocks({"type": "tool_use", "id": "c", "name": "f", "input": {}}, "assistant", 20_000)
    ),
    Value("20,000 results", lambda: _blocks({"type": "tool_result", "tool_use_id": "c"}, "user", 20_000)),
    Value("5,000 system messages", lambda: _talk(2_500, "hi").replace('"assistant"', '"system"')),
]
INPUTS = [
    *TALKS,
    Value("60,000 reasoning items", lambda: list_of('{"type":"reasoning","summary":[]}', 60_000)),
    Value(
        "40,000 calls",
        lambda: list_of('{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}', 40_000),
    ),
]


def _compactions(count: int, summary: str) -> str:
    return list_of(json.dumps(compaction_item(summary)), count)


COMPACTIONS = [
    Value("30 compactions of 1 MB", lambda: _compactions(30, "x" * (MAX_CHARS // 4 * 3 - 64))),
    Value("20,000 compactions", lambda: _compactions(20_000, "x")),
    Value(
        "a compaction of 20 MB",
        lambda: json.dumps([{"type": "compaction", "encrypted_content": "tokenwire.1." + "A" * (20 * MIB)}]),
    ),
]
SYSTEMS = [long_text(20 * MIB), Value("60,000 parts", lambda: list_of('{"type":"text","text":"hi"}', 60_000))]
CONVERSATIONS = [
    Value("500 chats", lambda: list_of(json.dumps([_USER]), 500)),
    Value("16,384 chats", lambda: list_of(json.dumps([_USER]), 16_384)),
    Value("65,536 chats", lambda: list_of("[]", 65_536)),
    Value("20 chats of 200 messages", lambda: list_of(_talk(100, "hi"), 20)),
    Value("6 chats of 5 MB", lambda: list_of(_big(5), 6)),
]
"""Of TRL's chat route."""
