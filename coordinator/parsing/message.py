"""The nouns and seams of parsing: what a message is made of, and what reads one out of a model's output."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from tokenwire.coordinator.parsing.rules import MessageRules, ToolCall
from tokenwire.errors import EngineFailed, TokenwireError
from tokenwire.v1 import inference_pb2 as pb


class ParserUnusable(TokenwireError):
    """A configured parser cannot be loaded, or not for this model. Nothing that a client could change."""


class ParserFailed(EngineFailed):
    """A parser broke on what the model wrote."""


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """What one tool call gained. Its first delta has the id and the name."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str | None = None
    """Characters to append; together they are meant to be JSON."""

    def as_dict(self) -> dict[str, Any]:
        """Return OpenAI's delta of a tool call."""
        shown: dict[str, Any] = {} if self.id is None else {"id": self.id, "type": "function"}
        shown["index"] = self.index
        function = {"name": self.name, "arguments": self.arguments}
        shown["function"] = {name: value for name, value in function.items() if value is not None}
        return shown


@dataclass(frozen=True, slots=True)
class MessageDelta:
    """What a message gained; what it did not gain is None or empty."""

    content: str | None = None
    reasoning: str | None = None
    tool_calls: tuple[ToolCallDelta, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return OpenAI's delta with vLLM's `reasoning`."""
        shown: dict[str, Any] = {}
        if self.content is not None:
            shown["content"] = self.content
        if self.reasoning is not None:
            shown["reasoning"] = self.reasoning
        if self.tool_calls:
            shown["tool_calls"] = [call.as_dict() for call in self.tool_calls]
        return shown


@dataclass(frozen=True, slots=True)
class ParsedMessage:
    """A whole message, as the client sees it."""

    content: str | None
    reasoning: str | None
    tool_calls: tuple[ToolCall, ...]
    finish_reason: str


class RawParser(Protocol):
    """A parser as it comes, for one choice: vLLM's Parser, in our nouns."""

    def feed(self, text: str, token_ids: list[int], finished: bool) -> MessageDelta | None:
        """Take what was generated since; return what that adds to the message, None for nothing yet."""

    def parse(self, text: str, token_ids: Sequence[int]) -> tuple[str | None, str | None, tuple[ToolCall, ...]]:
        """Read a whole output; return reasoning, content and tool calls."""

    def count_reasoning(self, token_ids: Sequence[int]) -> int:
        """Count the tokens that were reasoning."""


class MessageParser(Protocol):
    """Reads the message out of one choice's output, by the rules of its request.

    Either `delta` for every step and then `finish_reason`, or `whole` once. All of them raise ParserFailed and
    nothing else.
    """

    def delta(self, text: str, token_ids: list[int], finished: bool) -> MessageDelta | None:
        """Take what one step brought, token by token where that is possible; None: nothing to show for it yet."""

    def finish_reason(self, reason: str) -> str:
        """Return what the last chunk says, given the engine's reason, after the last delta."""

    def whole(self, text: str, token_ids: Sequence[int], reason: str) -> ParsedMessage:
        """Read a complete output that ended for the engine's reason."""

    def reasoning_tokens(self, token_ids: Sequence[int]) -> int:
        """Count the tokens, of all that the choice has, that were reasoning."""


class ParserPlan(Protocol):
    """What the parsers make of one request, before and after it is generated."""

    @property
    def rules(self) -> MessageRules:
        """How the client wants its message."""

    @property
    def skip_special_tokens(self) -> bool:
        """Whether the text leaves special tokens out: parsers may need to see them, whatever the client said."""

    @property
    def spaces_between_special_tokens(self) -> bool:
        """As the detokenizer's rule of that name."""

    @property
    def structured_outputs(self) -> pb.StructuredOutputs | None:
        """The grammar to generate by, in place of the request's own: tools, structured outputs, response format."""

    @property
    def reasoning_parser_kwargs(self) -> Mapping[str, Any] | None:
        """Arguments of the engine's own reasoning parser, which decides where a grammar begins."""

    @property
    def prompt_token_ids(self) -> Sequence[int] | None:
        """The prompt, where the parsers' format renders it (gpt-oss); None: by the chat template."""

    def reasoning_ended(self, prompt_token_ids: Sequence[int]) -> bool | None:
        """Tell whether the prompt ends behind its reasoning; None leaves that to the engine."""

    def parser(self, prompt_token_ids: Sequence[int]) -> MessageParser:
        """Return a parser for one choice."""


class Parsers(Protocol):
    """What a model's chat requests are parsed with."""

    @property
    def counts_reasoning(self) -> bool:
        """Whether usage says how many tokens were reasoning."""

    @property
    def reads_messages(self) -> bool:
        """Whether a plan needs the whole request, or only its tools and tool_choice."""

    def plan(self, body: Mapping[str, Any]) -> ParserPlan | None:
        """Check a chat request, as JSON, and plan for it. None: its output is content as it is.

        Raises InvalidRequest. The body is not changed. Takes about a millisecond; with gpt-oss, which renders here, as
        long as tokenizing its messages: long ones belong in a thread.
        """


def joined(deltas: Sequence[MessageDelta]) -> dict[str, Any]:
    """Return OpenAI's message as a client puts it together from deltas."""
    calls: dict[int, dict[str, Any]] = {}
    for delta in deltas:
        for call in delta.tool_calls:
            function = calls.setdefault(call.index, {"name": "", "arguments": ""})
            function["name"] += call.name or ""
            function["arguments"] += call.arguments or ""
    return {
        "role": "assistant",
        "content": "".join(delta.content or "" for delta in deltas),
        "reasoning": "".join(delta.reasoning or "" for delta in deltas),
        "tool_calls": [{"type": "function", "function": function} for function in calls.values()],
    }


def merge(one: MessageDelta | None, other: MessageDelta | None) -> MessageDelta | None:
    """Return both deltas as one, with the deltas of one tool call joined where they follow each other."""
    if one is None or other is None:
        return one or other
    calls = list(one.tool_calls)
    for call in other.tool_calls:
        if calls and calls[-1].index == call.index and call.id is None and call.name is None:
            calls[-1] = replace(calls[-1], arguments=_join(calls[-1].arguments, call.arguments))
        else:
            calls.append(call)
    return MessageDelta(_join(one.content, other.content), _join(one.reasoning, other.reasoning), tuple(calls))


def _join(one: str | None, other: str | None) -> str | None:
    if one is None or other is None:
        return one if other is None else other
    return one + other
