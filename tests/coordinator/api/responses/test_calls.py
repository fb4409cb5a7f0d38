"""Arguments of calls become the inputs and commands of items."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwire.coordinator.api.responses.calls import (
    CUSTOM,
    LOCAL_SHELL,
    InputReader,
    custom_arguments,
    shell_arguments,
)

TEXT = st.text(st.characters(codec="utf-8") | st.sampled_from('"\\\n/u😀'))


def input_of(pieces: list[str]) -> str:
    """Return the joined deltas."""
    reader = InputReader()
    return "".join(reader.feed(piece) for piece in pieces) + reader.rest()


@given(text=TEXT, ascii_only=st.booleans(), cuts=st.lists(st.integers(0, 200)))
def test_an_input_is_read_wherever_its_json_is_cut(text: str, ascii_only: bool, cuts: list[int]) -> None:
    """Also within an escape, and between the surrogates of a pair."""
    arguments = json.dumps({"input": text}, ensure_ascii=ascii_only)
    places = sorted({min(cut, len(arguments)) for cut in cuts} | {0, len(arguments)})
    pieces = [arguments[one:other] for one, other in itertools.pairwise(places)]

    assert input_of(pieces) == text
    assert CUSTOM.read(arguments) == text
    assert CUSTOM.read(custom_arguments(text)) == text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"input": "a b', "a b"),  # cut by a limit
        ('{"input": "a\\', "a"),
        ('{"input": "a\\ud83d\\u', "a"),
        ('{"input": "a\\ud83d b"}', "a\ufffd b"),
        ('{"input": "\\d+\n"}', "\\d+\n"),  # models write such
        ('{"input": "a\\u12 and more of it"}', 'a\\u12 and more of it"}'),
        ('{"why": 1, "input": "a"}', "a"),
        ('{"input": 1}', '{"input": 1}'),
        ("ls -l", "ls -l"),
        ("", ""),
    ],
)
def test_any_arguments_become_text(arguments: str, text: str) -> None:
    """The text of the JSON, or arguments in any other format unchanged; at once and character by character."""
    assert CUSTOM.read(arguments) == text
    assert input_of(list(arguments)) == text


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        ('{"command": ["ls", 1]}', ["ls", "1"]),
        ('{"command": "ls | wc"}', ["bash", "-lc", "ls | wc"]),
        ('{"command": ["l', []),
        ("[]", []),
        ('{"command": 1, "env": 2, "timeout_ms": "x", "user": []}', []),
    ],
)
def test_an_invalid_command_is_empty(arguments: str, command: list[str]) -> None:
    """It must not become another command."""
    action = LOCAL_SHELL.read(arguments)

    assert action == {
        "type": "exec", "command": command, "env": {}, "timeout_ms": None, "working_directory": None, "user": None,
    }  # fmt: skip


def test_an_action_has_no_unpaired_surrogates() -> None:
    """No response could contain them."""
    assert LOCAL_SHELL.read(r'{"command": ["\ud800", "\ud83d\ude00"]}')["command"] == ["\ufffd", "\N{GRINNING FACE}"]


def test_an_action_keeps_all_of_its_parts() -> None:
    """Converted to arguments and back."""
    action = {"command": ["a"], "env": {"B": "c"}, "timeout_ms": 5, "working_directory": "/d", "user": "e"}

    assert LOCAL_SHELL.read(json.dumps(action)) == {"type": "exec", **action}
    assert json.loads(shell_arguments(LOCAL_SHELL.read(json.dumps(action)))) == action
