"""Translates custom tools and the local shell to functions, the only tools that chat templates have."""

from collections.abc import Mapping
from typing import Any

from tokenwire.errors import InvalidRequest

SHELL_NAME = "local_shell"
SHELL_FUNCTION: Mapping[str, Any] = {
    "name": SHELL_NAME,
    "description": "Runs a command on the user's machine and returns its output.",
    "parameters": {
        "type": "object",
        "properties": {
            "command": {"type": "array", "items": {"type": "string"}, "description": "The program and its arguments."},
            "env": {"type": "object", "additionalProperties": {"type": "string"}, "description": "Added variables."},
            "timeout_ms": {"type": "integer", "description": "Timeout in milliseconds."},
            "working_directory": {"type": "string", "description": "The directory to run it in."},
            "user": {"type": "string", "description": "The user to run it as."},
        },
        "required": ["command"],
    },
}
"""The local shell: the client runs the commands."""
_INPUT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
_SYNTAXES = {"lark": "a Lark grammar", "regex": "a regular expression"}


def custom_function(tool: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return a custom tool as a function with one string. Raises InvalidRequest.

    Enforcing a grammar would require one for the whole call, in each model's syntax of calls: the description states
    it instead.
    """
    description = tool.get("description") or ""
    if not isinstance(description, str):
        raise InvalidRequest(f"{where}.description must be a string.", param="tools")
    match tool.get("format"):
        case None | {"type": "text"}:
            pass
        case {"type": "grammar", "syntax": "lark" | "regex" as syntax, "definition": str(definition)}:
            description += f"\n\nThe input has to follow {_SYNTAXES[syntax]}:\n{definition}"
        case _:
            raise InvalidRequest(
                f"{where}.format must be of type 'text', or of type 'grammar' with a `syntax` of 'lark' or 'regex' and "
                "a `definition`.",
                param="tools",
            )
    return {"name": tool.get("name"), "description": description.strip(), "parameters": _INPUT}


def has_grammar(tool: Mapping[str, Any]) -> bool:
    """Return whether a custom tool accepted by custom_function has a grammar."""
    form = tool.get("format")
    return isinstance(form, Mapping) and form.get("type") == "grammar"
