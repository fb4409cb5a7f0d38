"""A Responses request's tools and tool choice in chat's form.

Functions in a namespace are named `<namespace>__<name>` in the prompt, as in vLLM, and have their own names in the
reply. Custom tools and the local shell are functions in the prompt (calls.py). Tools that OpenAI's servers run are left
out of the prompt: clients offer them but do not depend on them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tokenwire.coordinator.api.responses.calls import CUSTOM, FUNCTION, LOCAL_SHELL, CallKind
from tokenwire.coordinator.api.responses.functions import SHELL_FUNCTION, SHELL_NAME, custom_function, has_grammar
from tokenwire.errors import InvalidRequest

_CHOICES = ("none", "auto", "required")
_HOSTED = frozenset(
    {
        *("web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11"),
        *("file_search", "code_interpreter", "image_generation", "mcp", "tool_search"),
    }
)


@dataclass(slots=True)
class Tools:
    """The tools of one request."""

    served: list[Mapping[str, Any]] = field(default_factory=list)
    """The tools that the model may call, as the client sent them."""
    left_out: list[str] = field(default_factory=list)
    """Types of tools that only OpenAI's servers can run."""
    _functions: list[dict[str, Any]] = field(default_factory=list)
    """The tools in chat's form."""
    unenforced: list[str] = field(default_factory=list)
    """Paths of custom tools whose grammar is only part of their description."""
    _kinds: dict[str, CallKind] = field(default_factory=dict)
    """Kinds of calls, by the names in the prompt."""
    _namespaced: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Namespace and own name, by the name in the prompt."""

    @classmethod
    def of(cls, tools: Sequence[Mapping[str, Any]] | None) -> "Tools":
        """Sort a request's tools. Raises an InvalidRequest that names the first one not served."""
        sorted_ = cls()
        for i, tool in enumerate(tools or ()):
            sorted_._add(tool, f"tools[{i}]")
        return sorted_

    def chat(self, choice: str | Mapping[str, Any] | None = None) -> list[dict[str, Any]] | None:
        """Return the tools that a choice allows, in chat's form; None if there are none. Raises InvalidRequest."""
        if not isinstance(choice, Mapping) or choice.get("type") != "allowed_tools":
            return self._functions or None
        names = self._allowed(choice.get("tools"))
        return [each for each in self._functions if each["function"]["name"] in names] or None

    def chat_choice(self, choice: str | Mapping[str, Any] | None) -> str | dict[str, Any] | None:
        """Return a tool choice in chat's form. Raises InvalidRequest."""
        functions = self.chat(choice)
        if isinstance(choice, Mapping) and choice.get("type") == "allowed_tools":
            choice = choice.get("mode")
            if choice not in ("auto", "required"):
                raise InvalidRequest(
                    f"`tool_choice.mode` must be auto or required, not {choice!r}.", param="tool_choice"
                )
        if isinstance(choice, Mapping):
            kind = choice.get("type")
            if isinstance(kind, str) and kind in _HOSTED:
                raise _forced(repr(kind))
            if kind not in ("function", "custom"):
                raise InvalidRequest(f"`tool_choice` of type {kind!r} is not supported.", param="tool_choice")
            return {"type": "function", "function": {"name": self._prompt_name(choice.get("name"))}}
        if choice is not None and choice not in _CHOICES:
            raise InvalidRequest(
                f"`tool_choice` must be one of {', '.join(_CHOICES)}, or a function, not {choice!r}.",
                param="tool_choice",
            )
        if choice == "required" and not functions and self.left_out:
            raise _forced(", ".join(dict.fromkeys(self.left_out)))
        # OpenAI's default is "auto", with or without tools.
        return None if choice == "auto" and not functions else choice

    def kind_of(self, name: str) -> CallKind:
        """Return the kind of a call, from its name in the prompt."""
        return self._kinds.get(name, FUNCTION)

    def own_name(self, name: str) -> dict[str, str]:
        """Return the fields that name a call's function, from its name in the prompt."""
        if self.kind_of(name) is LOCAL_SHELL:
            return {}
        if name not in self._namespaced:
            return {"name": name}
        namespace, own = self._namespaced[name]
        return {"name": own, "namespace": namespace}

    def _add(self, tool: Mapping[str, Any], where: str) -> None:
        kind = tool.get("type")
        if self._is_hosted(tool):
            return
        if kind == "namespace":
            tool = self._add_namespace(tool, where)
        elif kind == "local_shell":
            self._add_function(SHELL_FUNCTION, where, LOCAL_SHELL)
        else:
            self._add_member(tool, where)
        self.served.append(tool)

    def _is_hosted(self, tool: Mapping[str, Any]) -> bool:
        """Return whether only OpenAI's servers can run a tool; it is left out then."""
        kind = tool.get("type")
        if not isinstance(kind, str) or kind not in _HOSTED:
            return False
        self.left_out.append(kind)
        return True

    def _add_namespace(self, tool: Mapping[str, Any], where: str) -> Mapping[str, Any]:
        """Add what is in a namespace; return the namespace with what is served of it."""
        namespace, members = _name(tool, where), tool.get("tools")
        if not isinstance(members, list) or not all(isinstance(member, Mapping) for member in members):
            raise InvalidRequest(f"{where}.tools is required and must be a list of tools.", param="tools")
        served = []
        for i, member in enumerate(members):
            if not self._is_hosted(member):
                self._add_member(member, f"{where}.tools[{i}]", namespace)
                served.append(member)
        return {**tool, "tools": served}

    def _add_member(self, tool: Mapping[str, Any], where: str, namespace: str | None = None) -> None:
        kind = tool.get("type")
        if kind == "custom":
            self._add_function(custom_function(tool, where), where, CUSTOM, namespace)
            if has_grammar(tool):
                self.unenforced.append(where)
        elif kind == "function":
            self._add_function(tool, where, FUNCTION, namespace)
        else:
            raise InvalidRequest(
                f"{where} is of type {kind!r}: only functions, custom tools, namespaces of these, and the local shell "
                "are supported.",
                param="tools",
            )

    def _add_function(self, tool: Mapping[str, Any], where: str, kind: CallKind, namespace: str | None = None) -> None:
        name = own = _name(tool, where)
        if namespace is not None:
            name = prompt_name(namespace, own)
            self._namespaced[name] = namespace, own
        known = self._kinds.get(name)
        if known is not None and (name in self._namespaced or not known is kind is FUNCTION):
            raise InvalidRequest(f"{where}: there are two functions with the name {name!r}.", param="tools")
        self._kinds[name] = kind
        function = {key: value for key, value in tool.items() if key != "type"}
        self._functions.append({"type": "function", "function": {**function, "name": name}})

    def _allowed(self, tools: object) -> set[str]:
        """Return the names in the prompt of the tools that a choice lists. Raises InvalidRequest."""
        if not isinstance(tools, list) or not all(isinstance(tool, Mapping) for tool in tools):
            raise InvalidRequest("`tool_choice.tools` is required and must be a list of tools.", param="tool_choice")
        names = set()
        for tool in tools:
            kind = tool.get("type")
            if isinstance(kind, str) and kind in _HOSTED:
                continue
            name = SHELL_NAME if kind == "local_shell" else self._prompt_name(tool.get("name"))
            if not isinstance(name, str) or name not in self._kinds:
                raise InvalidRequest(f"`tool_choice` allows {name!r}, which is not among `tools`.", param="tool_choice")
            names.add(name)
        return names

    def _prompt_name(self, chosen: object) -> object:
        """Return a chosen function's name in the prompt; its namespace may be omitted if the name is unique."""
        if not isinstance(chosen, str) or chosen in self._kinds:
            return chosen
        names = [name for name, (_, own) in self._namespaced.items() if own == chosen]
        if len(names) > 1:
            raise InvalidRequest(
                f"`tool_choice` names {chosen!r}, which is in several namespaces: choose one of {', '.join(names)}.",
                param="tool_choice",
            )
        return names[0] if names else chosen


def prompt_name(namespace: str, name: str) -> str:
    """Return the name of a namespace's function in the prompt."""
    return f"{namespace}__{name}"


def _forced(types: str) -> InvalidRequest:
    return InvalidRequest(f"`tool_choice` forces {types}, which only OpenAI's servers can run.", param="tool_choice")


def _name(tool: Mapping[str, Any], where: str) -> str:
    name = tool.get("name")
    if not isinstance(name, str) or not name:
        raise InvalidRequest(f"{where}.name is required and must be a string.", param="tools")
    return name
