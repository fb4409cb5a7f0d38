"""The rules of a request's messages: visible tool calls, finish reasons and hidden reasoning."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tokenwire.errors import InvalidRequest

ToolChoiceKind = Literal["none", "auto", "required", "named"]
CheckedToolChoice = str | Mapping[str, Any] | None
"""The checked `tool_choice` of a request: "auto", "required", or an object that names a tool; None: no tools."""


@dataclass(frozen=True, slots=True)
class ParsedToolCall:
    """A complete tool call."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class MessageRules:
    """The rules of one request, as in vLLM's chat route."""

    tool_choice: ToolChoiceKind = "none"
    parses_tools: bool = False
    """Whether a tool parser is configured, including for automatic choice."""
    parallel_tool_calls: bool = True
    """False: only the first call is sent."""
    include_reasoning: bool = True

    @property
    def hides_tokens(self) -> bool:
        """Whether log-probabilities and token ids are omitted: they would disclose hidden reasoning."""
        return not self.include_reasoning

    def shows_call(self, index: int) -> bool:
        """Return whether a streamed tool call is sent."""
        return self.parallel_tool_calls or index == 0

    def streamed_finish(self, reason: str, tools_streamed: bool) -> str:
        """Return the finish reason of a stream, given the engine's. A named tool was not the model's decision."""
        if tools_streamed and self.tool_choice != "named" and reason == "stop":
            return "tool_calls"
        return reason

    def full_content(self, content: str | None) -> str | None:
        """Return the content of a full message: with a forced tool it may be empty, but is never null."""
        return content or "" if self._forced else content

    def full_calls(self, calls: Sequence[ParsedToolCall]) -> tuple[ParsedToolCall, ...]:
        """Return the tool calls of a full message."""
        if not self._forced and not (self.tool_choice == "auto" and self.parses_tools):
            return ()
        return tuple(calls if self.parallel_tool_calls else calls[:1])

    def full_finish(self, reason: str, calls: Sequence[ParsedToolCall]) -> str:
        """Return the finish reason of a full message, given the engine's."""
        called = self.tool_choice == "auto" and len(calls) > 0 and reason != "abort"  # which vLLM hides
        return "tool_calls" if called or (self.tool_choice == "required" and reason == "stop") else reason

    @property
    def _forced(self) -> bool:
        return self.tool_choice in ("required", "named")


def require_tool_parser(choice: str | Mapping[str, Any], enable_auto_tool_choice: bool = False) -> None:
    """Raise InvalidRequest for a choice of tools, since no tool parser is configured."""
    if choice == "auto":
        if enable_auto_tool_choice:
            return
        raise InvalidRequest('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set')
    named = f'"{choice}"' if isinstance(choice, str) else f'function "{choice["function"]["name"]}"'
    raise InvalidRequest(f"tool_choice={named} requires --tool-call-parser to be set")


def choice_kind(choice: Any) -> ToolChoiceKind:
    """Return the kind of a checked tool choice; a named tool may be an object of any class."""
    if choice is None or isinstance(choice, str):
        kind: ToolChoiceKind = choice or "none"  # type: ignore[assignment]
        return kind
    return "named"


def copy_body(body: Mapping[str, Any]) -> dict[str, Any]:
    """Copy the parts of a request that vLLM's validators modify."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        return dict(body)
    return {**body, "messages": [dict(message) if isinstance(message, dict) else message for message in messages]}
