"""Expensive values of request fields, as JSON text: some have a million parts, or more levels than `json` writes."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

CONTEXT = 32_768
"""The context of the simulated model, in tokens."""
VOCABULARY = 49_152
LONG_TOKENS = {VOCABULARY - 12 + number: mark * 128 for number, mark in enumerate('="')}
"""Ids and texts of long tokens, as many real models have. Twice its characters is the second as JSON."""
MIB = 2**20


@dataclass(frozen=True)
class Value:
    """A value that a field can have."""

    name: str
    json_text: Callable[[], str]
    is_small: bool = False
    """Whether it costs nothing by itself."""


def small(*values: Any) -> list[Value]:
    """Return small values that speak for themselves."""
    return [Value(json.dumps(value), partial(json.dumps, value), is_small=True) for value in values]


def value_of(name: str, value: Any) -> Value:
    """Return a value made of Python's."""
    return Value(name, partial(json.dumps, value))


def list_of(item: str, count: int) -> str:
    """Return a list of the same item."""
    return "[" + ",".join([item] * count) + "]"


def many(count: int, what: str, item: str) -> Value:
    """Return a list of so many of the same, given as JSON."""
    return Value(f"{count:,} {what}", lambda: list_of(item, count))


def numbered_ids(count: int, below: int = 200) -> str:
    """Return so many token ids."""
    return "[" + ",".join([str(5 + i % below) for i in range(count)]) + "]"


def id_lists(lists: int, length: int) -> Value:
    """Return prompts of ids."""
    return Value(f"{lists:,} x {length:,} ids", lambda: list_of(numbered_ids(length), lists))


def id_list(count: int, below: int = 200) -> Value:
    """Return one prompt of ids."""
    return Value(f"{count:,} ids", lambda: numbered_ids(count, below))


def same_ids(count: int, token_id: int, what: str) -> Value:
    """Return a prompt of the same id."""
    return Value(f"{count:,} ids of {what}", lambda: list_of(str(token_id), count))


def long_text(size: int, piece: str = "hello world ") -> Value:
    """Return a text of so many bytes."""
    shown = f"{size / MIB:g} MB" if size >= MIB else f"{size:,} bytes"
    return Value(f"{shown} of {piece!r}", lambda: json.dumps(piece * (size // len(piece.encode())), ensure_ascii=False))


def texts(count: int, size: int) -> Value:
    """Return a list of texts."""
    return many(count, f"texts of {size:,}", json.dumps(("hello world " * (size // 12 + 1))[:size]))


def entries(count: int, item: str, first: str = "k") -> str:
    """Return an object with so many fields."""
    return "{" + ",".join([f'"{first}{i}":{item}' for i in range(count)]) + "}"


def fields(count: int, what: str, item: str) -> Value:
    """Return an object with so many fields of the same value."""
    return Value(f"{count:,} fields of {what}", lambda: entries(count, item))


def inside(name: str, value: Value) -> Value:
    """Return an object with one field."""
    return Value(f"{value.name} in {name}", lambda: f'{{"{name}":{value.json_text()}}}')


def deep(depth: int, opening: str = "[", closing: str = "]") -> Value:
    """Return lists or objects within each other."""
    return Value(f"{depth:,} levels of {opening}", lambda: opening * depth + "1" * (":" in opening) + closing * depth)


def with_arguments(name: str, arguments: Callable[[], str], calls: int = 1) -> Value:
    """Return the messages of a chat in which a tool was called, with arguments that are made when they are needed."""

    def messages() -> str:
        call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments()}}
        called = {"role": "assistant", "content": None, "tool_calls": [call] * calls}
        return json.dumps([{"role": "user", "content": "hi"}, called])

    return Value(f"{calls} x {name} as arguments", messages)


OPEN_OBJECTS: Sequence[Value] = (
    fields(10_000, "1", "1"),
    fields(150_000, "[]", "[]"),
    deep(200, '{"a":', "}"),
    deep(100_000, '{"a":', "}"),
    Value("8 MB in a field", lambda: json.dumps({"a": "x" * (8 * MIB)})),
)
"""Of fields that take any object."""
SHAPES: Sequence[Value] = (
    many(500_000, "empty lists", "[]"),
    many(120_000, "empty objects", "{}"),
    many(250_000, "empty texts", '""'),
    many(3_500_000, "ones", "1"),
    many(120_000, "floats of 200 digits", "0." + "3" * 200),
    many(6_000, "integers of 4,000 digits", "7" * 4000),
    fields(200_000, "null", "null"),
    deep(900),
    deep(1_000_000),
    long_text(30 * MIB),
    long_text(28 * MIB, "\u00e9"),
    Value("5 MB of escapes", lambda: '"' + "\\u00e9" * (5 * MIB // 6) + '"'),
    many(15_000_000, "of nothing but commas", "1"),
)
"""Of fields that a body may have or not: each is close to a limit on bodies, or beyond it."""
