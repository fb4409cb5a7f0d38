"""Translates vLLM's errors to tokenwire's wording by rule; what then differs is a difference."""

import ast
import re
from typing import Any

_LISTED = re.compile(r"(\d+ validation errors?):\n((?:  \{.*\}\n?)+)(?:  \.\.\.and (\d+) more.*)?$", re.DOTALL)
_SUFFIX = re.compile(r" \(parameter=([\w.]+)(?:, value=.*)?\)$", re.DOTALL)


def translated(error: dict[str, Any]) -> dict[str, Any]:
    """Return an error of vLLM's in tokenwire's wording, by rule.

    A field is named without "body." in front; a list of pydantic's errors has a line for each; the parameter that
    vLLM appends to a message is in `param` only. Where `param` and message name different ones, nothing is translated.
    """
    message, param = error.get("message"), error.get("param")
    if not isinstance(message, str):
        return error
    if (listed := _LISTED.match(message)) is not None:
        try:
            return {**error, "message": _lines(listed), "param": _field(param)}
        except (ValueError, KeyError):  # other versions of vLLM list Python objects
            return error
    if (suffix := _SUFFIX.search(message)) is not None and suffix[1] == param:
        return {**error, "message": message[: suffix.start()]}
    return error


def _field(param: Any) -> Any:
    return param.removeprefix("body.") if isinstance(param, str) else param


def _lines(listed: re.Match[str]) -> str:
    lines = [_line(ast.literal_eval(line.strip())) for line in listed[2].splitlines() if line.strip()]
    if listed[3]:
        lines.append(f"... and {listed[3]} more")
    return "\n  ".join([f"{listed[1]}:", *lines])


def _line(problem: dict[str, Any]) -> str:
    return f"{_field(problem['loc'])}: {problem['msg']} (got {_got(str(problem['input']))})"


def _got(value: str) -> str:
    """Return a value as compared: vLLM's list does not distinguish a string from what prints like one."""
    container = re.fullmatch(r"<(list|dict) of (\d+) items>", value)
    return f"a {container[1]} of {container[2]} items" if container else value


def without_quotes(message: str) -> str:
    """Return a tokenwire message with its values as vLLM prints them."""
    return re.sub(r"\(got (['\"])(.*?)\1\)$", r"(got \2)", message, flags=re.MULTILINE)


Place = tuple[str, str | None]
"""A place in a request, and the value that stands there, where an error states it."""

_PLACE = re.compile(r"^  ([\w.]+): .*?(?: \(got (.*)\))?$", re.MULTILINE)
_SENTENCE = re.compile(r"^([a-z_]\w*(?:\[\d+\]|\.\w+)*)")


def places(message: str) -> list[Place]:
    """Return the paths that a message is about, without pydantic's names of union members."""
    if "validation error" not in message.partition("\n")[0]:
        return [(_plain(place), None) for place in _SENTENCE.findall(message)]
    return [(_plain(place), value or None) for place, value in _PLACE.findall(message)]


def _plain(place: str) -> str:
    parts = place.replace("[", ".").replace("]", "").split(".")
    return ".".join(part for part in parts if not part[0].isupper())
