"""Tool calls as items. To models all tools are functions; the tool's kind determines the item that clients get.

A custom tool is a function with one string, `input`; the local shell is a function with the parts of a command.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tokenwire.coordinator.api.json_text import replace_unpaired

_BEGIN = re.compile(r'\s*\{\s*"input"\s*:\s*"')
_TEXT = re.compile(r'(?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u])*+', re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_HALF_PAIR = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\Z")
_LONGEST_CUT_ESCAPE = len(r"\ud83d\ude0")
"""Length of the longest incomplete escape."""


class ArgumentsReader(Protocol):
    """Converts a call's streamed arguments to the deltas of its item."""

    def feed(self, arguments: str) -> str:
        """Add arguments; return the delta."""

    def rest(self) -> str:
        """Return the last delta, at the end of the arguments."""


class _Verbatim:
    def feed(self, arguments: str) -> str:
        return arguments

    def rest(self) -> str:
        return ""


class _Unshown(_Verbatim):
    def feed(self, arguments: str) -> str:
        return ""


class InputReader:
    """Extracts the input of a custom tool's call from incomplete JSON."""

    def __init__(self) -> None:
        self._unparsed = ""
        self._began = self._ended = False

    def feed(self, arguments: str) -> str:
        """Return new text, except what may be an incomplete escape."""
        if self._ended:
            return ""
        self._unparsed += arguments
        if not self._began:
            begin = _BEGIN.match(self._unparsed)
            if begin is None:
                return ""
            self._began, self._unparsed = True, self._unparsed[begin.end() :]
        found = _TEXT.match(self._unparsed)
        assert found is not None  # may be empty
        text, after = found[0], self._unparsed[found.end() :]
        half = _HALF_PAIR.search(text)
        if half is not None and (not after or after.startswith("\\")):
            text, after = text[: half.start()], half[0] + after
        self._unparsed, self._ended = after, after.startswith('"')
        return _unescaped(text)

    def rest(self) -> str:
        """Return arguments in another format unchanged. An incomplete escape at the end is dropped."""
        if self._began:
            return "" if self._ended or len(self._unparsed) <= _LONGEST_CUT_ESCAPE else self._unparsed
        try:
            given = json.loads(self._unparsed, strict=False)
        except (ValueError, RecursionError):
            return self._unparsed
        text = given.get("input") if isinstance(given, dict) else None
        return _as_text(text) if isinstance(text, str) else self._unparsed


def _unescaped(text: str) -> str:
    """Resolve JSON's escapes; others, which models also write, are left unchanged."""
    return _as_text(_ESCAPE.sub(_resolved, text))


def _resolved(escape: re.Match[str]) -> str:
    sign = escape[1]
    return chr(int(sign[1:], 16)) if len(sign) > 1 else _ESCAPED.get(sign, escape[0])


def _as_text(text: str) -> str:
    """Replace unpaired surrogates, which cannot be encoded."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _input(arguments: str) -> str:
    reader = InputReader()
    return reader.feed(arguments) + reader.rest()


def _action(arguments: str) -> dict[str, Any]:
    """Return a shell action; its command is empty if the arguments have none."""
    try:
        given = json.loads(replace_unpaired(arguments), strict=False)
    except (ValueError, RecursionError):
        given = None
    action: Mapping[str, Any] = given if isinstance(given, dict) else {}
    command, env, timeout = action.get("command"), action.get("env"), action.get("timeout_ms")
    if isinstance(command, str):
        command = ["bash", "-lc", command]
    return {
        "type": "exec",
        "command": list(map(str, command)) if isinstance(command, list) else [],
        "env": {name: str(value) for name, value in env.items()} if isinstance(env, dict) else {},
        "timeout_ms": timeout if type(timeout) is int else None,
        **{name: action[name] if isinstance(action.get(name), str) else None for name in ("working_directory", "user")},
    }


@dataclass(frozen=True, slots=True)
class CallKind:
    """How the calls of one kind of tool appear to clients."""

    item_type: str
    id_prefix: str
    field: str
    """Name of the item's field for the arguments."""
    read: Callable[[str], Any]
    """Converts complete arguments to this field."""
    reader: Callable[[], ArgumentsReader]
    """Creates a reader of streamed arguments."""
    events: str | None
    """Prefix of the names of its delta events; None: it has none."""


FUNCTION = CallKind("function_call", "fc_", "arguments", str, _Verbatim, "response.function_call_arguments")
CUSTOM = CallKind("custom_tool_call", "ctc_", "input", _input, InputReader, "response.custom_tool_call_input")
LOCAL_SHELL = CallKind("local_shell_call", "lsh_", "action", _action, _Unshown, None)


def custom_arguments(text: str) -> str:
    """Return the arguments of a custom tool's call."""
    return json.dumps({"input": text}, ensure_ascii=False)


def shell_arguments(action: Mapping[str, Any]) -> str:
    """Return the arguments of a shell action."""
    given = {name: value for name, value in action.items() if name != "type" and value not in (None, {})}
    return json.dumps(given, ensure_ascii=False)
