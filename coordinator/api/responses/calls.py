"""Calls of tools as items. Models only know functions: what a call is to its client depends on the tool's kind.

A custom tool is a function with one text, `input`; the local shell is a function with the parts of a command.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

_BEGIN = re.compile(r'\s*\{\s*"input"\s*:\s*"')
_TEXT = re.compile(r'(?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u])*+', re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_HALF_PAIR = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\Z")
_LONGEST_RUMP = len(r"\ud83d\ude0")
"""Of what may be the beginning of an escape."""


class ArgumentsReader(Protocol):
    """Makes of a call's arguments, as they come, what a client's deltas show."""

    def feed(self, arguments: str) -> str:
        """Return what shows of some more arguments."""

    def rest(self) -> str:
        """Return what shows at the end of the arguments, and has not yet."""


class _Verbatim:
    def feed(self, arguments: str) -> str:
        return arguments

    def rest(self) -> str:
        return ""


class _Unshown(_Verbatim):
    def feed(self, arguments: str) -> str:
        return ""


class InputReader:
    """Reads the text of a custom tool's call out of JSON that is still being written."""

    def __init__(self) -> None:
        self._unread = ""
        self._began = self._ended = False

    def feed(self, arguments: str) -> str:
        """Return the text that is certain by now: an escape may still lack its end."""
        if self._ended:
            return ""
        self._unread += arguments
        if not self._began:
            begin = _BEGIN.match(self._unread)
            if begin is None:
                return ""
            self._began, self._unread = True, self._unread[begin.end() :]
        found = _TEXT.match(self._unread)
        assert found is not None  # it may be empty
        text, after = found[0], self._unread[found.end() :]
        half = _HALF_PAIR.search(text)
        if half is not None and (not after or after.startswith("\\")):
            text, after = text[: half.start()], half[0] + after
        self._unread, self._ended = after, after.startswith('"')
        return _unescaped(text)

    def rest(self) -> str:
        """Return arguments that are none, as they are. Half an escape at their end shows as nothing."""
        if self._began:
            return "" if self._ended or len(self._unread) <= _LONGEST_RUMP else self._unread
        try:
            given = json.loads(self._unread, strict=False)
        except (ValueError, RecursionError):
            return self._unread
        text = given.get("input") if isinstance(given, dict) else None
        return _as_text(text) if isinstance(text, str) else self._unread


def _unescaped(text: str) -> str:
    """Resolve JSON's escapes; others, which models write too, are left as they are."""
    return _as_text(_ESCAPE.sub(_resolved, text))


def _resolved(escape: re.Match[str]) -> str:
    sign = escape[1]
    return chr(int(sign[1:], 16)) if len(sign) > 1 else _ESCAPED.get(sign, escape[0])


def _as_text(text: str) -> str:
    """Replace halves of surrogate pairs, which nothing could be encoded with."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _input(arguments: str) -> str:
    reader = InputReader()
    return reader.feed(arguments) + reader.rest()


def _action(arguments: str) -> dict[str, Any]:
    """Return what a shell is to do: nothing, where the arguments do not say it."""
    try:
        given = json.loads(arguments, strict=False)
    except (ValueError, RecursionError):
        given = None
    said: Mapping[str, Any] = given if isinstance(given, dict) else {}
    command, env, timeout = said.get("command"), said.get("env"), said.get("timeout_ms")
    if isinstance(command, str):
        command = ["bash", "-lc", command]
    return {
        "type": "exec",
        "command": list(map(str, command)) if isinstance(command, list) else [],
        "env": {name: str(value) for name, value in env.items()} if isinstance(env, dict) else {},
        "timeout_ms": timeout if type(timeout) is int else None,
        **{name: said[name] if isinstance(said.get(name), str) else None for name in ("working_directory", "user")},
    }


@dataclass(frozen=True, slots=True)
class CallKind:
    """What calls of one kind of tools are to clients."""

    item_type: str
    id_prefix: str
    field: str
    """Of an item: what the model wrote."""
    read: Callable[[str], Any]
    """Makes this field of whole arguments."""
    reader: Callable[[], ArgumentsReader]
    """Makes what reads them as they come."""
    events: str | None
    """Beginning of the names of its deltas' events; None: there are none."""


FUNCTION = CallKind("function_call", "fc_", "arguments", str, _Verbatim, "response.function_call_arguments")
CUSTOM = CallKind("custom_tool_call", "ctc_", "input", _input, InputReader, "response.custom_tool_call_input")
LOCAL_SHELL = CallKind("local_shell_call", "lsh_", "action", _action, _Unshown, None)


def custom_arguments(text: str) -> str:
    """Return the arguments that a custom tool's call stands for."""
    return json.dumps({"input": text}, ensure_ascii=False)


def shell_arguments(action: Mapping[str, Any]) -> str:
    """Return the arguments that a shell's action stands for."""
    said = {name: value for name, value in action.items() if name != "type" and value not in (None, {})}
    return json.dumps(said, ensure_ascii=False)
