"""Draws requests by seed whose replies parsers read: texts that look like calls and thoughts, long ones and many."""

import json
import random
from collections.abc import Callable, Mapping, Sequence

from tests.adversary.attack import Attack, Reading
from tests.adversary.values import LONG_TOKENS, VOCABULARY, Value, list_of, small, value_of

PARSERS = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--reasoning-parser", "qwen3")
"""Options of a coordinator that parses what it can."""

_PARAMETERS = {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(20)}}


def _chat_tool(number: int) -> object:
    return {"type": "function", "function": {"name": f"f{number or ''}", "parameters": _PARAMETERS}}


def _responses_tool(number: int) -> object:
    return {"type": "function", "name": f"f{number or ''}", "parameters": _PARAMETERS, "strict": False}


def _anthropic_tool(number: int) -> object:
    return {"name": f"f{number or ''}", "input_schema": _PARAMETERS}


_TOOLS: Mapping[str, Callable[[int], object]] = {
    "/v1/chat/completions": _chat_tool,
    "/v1/responses": _responses_tool,
    "/v1/messages": _anthropic_tool,
}
"""Each route's form of a tool without a grammar of its own, by number."""
_THINKS, _CALLS, _CALL_ENDS = VOCABULARY - 10, VOCABULARY - 8, VOCABULARY - 7
"""Ids of `<think>`, `<tool_call>` and `</tool_call>`."""
_ALPHABETS: Mapping[str, Sequence[int]] = {
    **{f"only {text!r}": [ord(text) - 33] for text in '"<{[,\\'},
    "signs of JSON": [ord(text) - 33 for text in '{}[]",:1a'],
    "signs of tags": [ord(text) - 33 for text in "</>a"],
    "calls": [_CALLS],
    "calls and ends": [_CALLS, _CALL_ENDS],
    "calls and signs": [_CALLS, _CALL_ENDS, *(ord(text) - 33 for text in '{}[]",:1a')],
    "thoughts": [_THINKS],
    "thoughts and ends": [_THINKS, _THINKS + 1],
    "all marks": [*range(_THINKS, _THINKS + 6), *range(0, 90)],
    **{f"{text[0]!r} by 128": [token_id] for token_id, text in LONG_TOKENS.items()},
}
"""What a reply may consist of: names and token ids. The first ids are those of printable ASCII, from `!` on."""
_DERENDER = "/v1/chat/completions/derender"
_GIVEN_TOKENS = 1_000_000
"""Of all choices of a reply that is to be parsed, at most."""
_CALL = '<tool_call>\n{"name": "f", "arguments": %s}\n</tool_call>\n'
_TEXTS: Mapping[str, str] = {
    "a call of 12 KB": _CALL % ('{"a": "' + "x" * 12_000 + '"}'),
    "a call of 3,000 lists": _CALL % ('{"a": ' + "[" * 3_000 + "]" * 3_000 + "}"),
    "a call of 2,500 fields": _CALL % ("{" + ", ".join(['"a":1'] * 2_500) + "}"),
    "200 calls": _CALL % "{}" * 200,
    "800 beginnings of calls": "<tool_call>\n" * 800,
    "a call that does not end": _CALL.partition("%s")[0] + '{"a": "' + "x" * 14_000,
    "15 KB of thoughts": "<think>" + "x" * 15_000 + "</think>hi",
    "2,000 thoughts": "<think></think>" * 1_000,
}


def draw_parsed(seed: int) -> Attack:
    """Return the attack of a seed."""
    chance = random.Random(seed)
    path = chance.choices([*_TOOLS, _DERENDER], (3, 1, 1, 1))[0]
    if path == _DERENDER:
        given = _given(chance)
    else:
        given = {**_base(path, chance), **_written(chance), **_multiplied(path, chance)}
    readings: tuple[Reading, ...] = ("read", "stand still")
    reading = chance.choices(readings, (9, 1))[0]
    copies = chance.choice((1, 1, 1, 6))
    shown = " x ".join(f"{name}={value.name}" for name, value in given.items())
    how = ([] if reading == "read" else [str(reading)]) + ([] if copies == 1 else [f"{copies} at once"])
    return Attack(", ".join([f"{path} {shown}", *how]), path, given, reading=reading, copies=copies)


def _given(chance: random.Random) -> dict[str, Value]:
    """Return the fields of a reply of ids that is to be parsed: in few choices and long, or in many."""
    chat = "/v1/chat/completions"
    request = {name: json.loads(value.json_text()) for name, value in _base(chat, chance).items()}
    name, ids = chance.choice(list(_ALPHABETS.items()))
    length = chance.choice((1, 60, 4_000, 30_000))
    choices = min(chance.choice((1, 8, 1_000, 16_000)), _GIVEN_TOKENS // length)
    token_ids = [ids[number % len(ids)] for number in range(length)]

    def reply() -> str:
        return '{"choices":' + list_of(json.dumps({"index": 0, "token_ids": token_ids}), choices) + "}"

    return {
        "chat_request": value_of(f"a chat with {len(request.get('tools', ()))} tools", request),
        "generate_response": Value(f"{choices:,} x {length:,} of {name}", reply),
    }


def _base(path: str, chance: random.Random) -> dict[str, Value]:
    name = "input" if path == "/v1/responses" else "messages"
    length = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
    tools = [_TOOLS[path](number) for number in range(chance.choice((0, 1, 1, 50)))]
    return {
        name: value_of("a word", [{"role": "user", "content": "hi"}]),
        length: small(chance.choice((200, 1_000, 4_000)))[0],
        "temperature": small(1.0)[0],
        **({"tools": value_of(f"{len(tools)} tools", tools)} if tools else {}),
    }


def _written(chance: random.Random) -> dict[str, Value]:
    """Return the field that decides what the model writes."""
    if chance.random() < 0.7:
        name, ids = chance.choice(list(_ALPHABETS.items()))
        return {"allowed_token_ids": value_of(name, ids)}
    name, text = chance.choice(list(_TEXTS.items()))
    return {"structured_outputs": value_of(name, {"choice": [text]})}


def _multiplied(path: str, chance: random.Random) -> dict[str, Value]:
    """Return fields that make more of it."""
    given: dict[str, Value] = {}
    if chance.random() < 0.7:
        given["stream"] = small(True)[0]
    if path != "/v1/chat/completions":
        return given
    given["n"] = small(chance.choice((1, 8, 64, 256)))[0]
    if chance.random() < 0.3:
        given |= {"logprobs": small(True)[0], "top_logprobs": small(3)[0]}
    if chance.random() < 0.3:
        given["return_token_ids"] = small(True)[0]
    if "stream" in given and chance.random() < 0.5:
        given["stream_options"] = small({"include_usage": True, "continuous_usage_stats": True})[0]
    return given
