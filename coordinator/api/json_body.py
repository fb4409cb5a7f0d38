"""Parses bodies of JSON, and rejects text that has no UTF-8 encoding.

JSON can escape an unpaired surrogate ("\\ud800"), and Python keeps it. Protobuf, tokenizers and responses would fail on
it later, in vLLM with a 500 or mid-stream.
"""

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

from pydantic_core import PydanticSerializationError, from_json, to_json

from tokenwire.errors import Malformed
from tokenwire.process.gc_tuning import gc_disabled

parse_fast = partial(from_json, cache_strings="keys")
"""Rejects unpaired surrogates, and some of what json accepts: deeper nesting, a byte order mark."""


def parse_json(body: bytes | bytearray) -> Any:
    """Parse a body. Raises ValueError and RecursionError as json.loads does, Malformed for unpaired surrogates."""
    try:
        return parse_fast(body)
    except ValueError:
        return parse_slowly(body)


def parse_slowly(body: bytes | bytearray) -> Any:
    """Parse what the faster parser does not: json has better messages. Raises the same as `parse_json`."""
    parsed = json.loads(body)
    _check_text(parsed)
    return parsed


async def parse_json_in_turns(body: bytes | bytearray, turn: Callable[[], AbstractAsyncContextManager[None]]) -> Any:
    """Parse a large body as `parse_json` does, in up to three turns of the event loop. Raises the same."""
    async with turn():
        try:
            with gc_disabled():
                return parse_fast(body)
        except ValueError:
            pass
    async with turn():
        with gc_disabled():
            parsed = json.loads(body)
    async with turn():
        _check_text(parsed)
    return parsed


def _check_text(parsed: Any) -> None:
    for name, value in parsed.items() if isinstance(parsed, dict) else [("body", parsed)]:
        try:
            to_json([name, value])  # several times as fast
        except PydanticSerializationError:  # also if it is nested more deeply than that writes
            _check_field(name, value)


def _check_field(name: str, value: Any) -> None:
    try:
        json.dumps([name, value], ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        shown = name.encode(errors="backslashreplace").decode()
        surrogate = error.object[error.start].encode(errors="backslashreplace").decode()
        raise Malformed(f"{shown}: {surrogate} is an unpaired surrogate.", param=shown) from None
