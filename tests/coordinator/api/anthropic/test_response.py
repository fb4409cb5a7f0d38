"""Parts of a reply as Anthropic's content blocks, and its stop reasons."""

from typing import Any

import pytest

from tokenwire.coordinator.api.anthropic.response import full_block, shown_usage, stop
from tokenwire.coordinator.api.message_parts import MessagePart
from tokenwire.coordinator.types import Finish, Usage


def call_part(arguments: str) -> MessagePart:
    """Return a tool call."""
    return MessagePart("tool_call", 0, "t", "f", [arguments])


@pytest.mark.parametrize(
    ("parts", "finish", "reason", "sequence"),
    [
        ([], Finish("stop"), "end_turn", None),
        ([], Finish("stop", 7), "end_turn", None),
        ([], Finish("stop", "END"), "stop_sequence", "END"),
        ([], Finish("length"), "max_tokens", None),
        ([call_part("{}")], Finish("stop"), "tool_use", None),
        ([call_part("{}")], Finish("stop", "END"), "tool_use", None),
        ([call_part("{")], Finish("stop", "END"), "stop_sequence", "END"),
        ([call_part("{}")], Finish("length"), "max_tokens", None),
        ([], Finish("repetition"), "end_turn", None),
    ],
)
def test_stop_reasons(parts: list[MessagePart], finish: Finish, reason: str, sequence: str | None) -> None:
    """The limit wins, then complete calls, then a stop sequence."""
    assert stop(parts, finish) == {"stop_reason": reason, "stop_sequence": sequence}


def test_usage_counts_each_token_of_a_prompt_once() -> None:
    """As input, as read from the cache, or as written to it; all are input where the server shows no details."""
    usage = Usage(9, 1, cached_tokens=4, created_cache_tokens=2)

    assert shown_usage(usage, False) == {"input_tokens": 9, "output_tokens": 1}
    assert shown_usage(usage, True) == {
        "input_tokens": 3,
        "output_tokens": 1,
        "cache_read_input_tokens": 4,
        "cache_creation_input_tokens": 2,
    }
    assert shown_usage(Usage(3, 1, cached_tokens=2, created_cache_tokens=2), True)["input_tokens"] == 0


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ('{"x": 1}', {"x": 1}),
        ("", {}),
        ('{"x": 1, "y": "ab', {"x": 1}),
        ("[1]", {}),
        ("nonsense", {}),
        ('{"x": [NaN, 1e400, -Infinity, -0.5]}', {"x": [None, None, None, -0.5]}),
        (r'{"x": "\ud800", "y": "\ud83d\ude00 \\ud800", "z": "ab', {"x": "\ufffd", "y": "\N{GRINNING FACE} \\ud800"}),
    ],
)
def test_arguments_of_full_calls_are_objects(arguments: str, given: dict[str, Any]) -> None:
    """Truncated arguments keep their complete part, as Anthropic's client parses streams; what JSON lacks is null."""
    assert full_block(call_part(arguments))["input"] == given
