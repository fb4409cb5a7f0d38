"""Adapts vLLM's Parser of one choice to RawParser."""

from collections.abc import Sequence

from vllm.entrypoints.generate.base.protocol import DeltaMessage, DeltaToolCall
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser import Parser
from vllm.renderers.chat_utils import make_tool_call_id

from tokenwire.coordinator.parsing.message import MessageDelta, RawMessage, ToolCallDelta
from tokenwire.coordinator.parsing.rules import MessageRules, ParsedToolCall


class VllmParser:
    """A RawParser around vLLM's parser."""

    __slots__ = ("_full", "_parser", "_prompt", "_request", "_rules")

    def __init__(
        self, parser: Parser, full: Parser, request: ChatCompletionRequest, prompt: list[int], rules: MessageRules
    ) -> None:
        """`parser` parses deltas and `full` complete outputs; they may be the same."""
        self._parser = parser
        self._full = full
        self._request = request
        self._prompt = prompt
        self._rules = rules

    def feed(self, text: str, token_ids: list[int], finished: bool) -> MessageDelta | None:
        return _delta(self._parser.parse_delta(text, token_ids, self._request, self._prompt, finished=finished))

    def parse(self, text: str, token_ids: Sequence[int]) -> RawMessage:
        self._full.set_prompt_token_ids(self._prompt)
        reasoning, content, calls = self._full.parse(
            text, self._request, enable_auto_tools=self._rules.parses_tools, model_output_token_ids=token_ids
        )
        return (
            reasoning,
            content,
            tuple(ParsedToolCall(call.id or make_tool_call_id(), call.name, call.arguments) for call in calls or ()),
        )

    def count_reasoning(self, token_ids: Sequence[int]) -> int:
        return int(self._full.count_reasoning_tokens(tuple(token_ids)))


def _delta(delta: DeltaMessage | None) -> MessageDelta | None:
    if delta is None:
        return None
    content, reasoning, calls = delta.content or None, delta.reasoning or None, delta.tool_calls
    if calls:
        return MessageDelta(content, reasoning, tuple([_call(call) for call in calls]))
    return MessageDelta(content, reasoning) if content or reasoning else None


def _call(call: DeltaToolCall) -> ToolCallDelta:
    if call.function is None:
        return ToolCallDelta(call.index, call.id)
    return ToolCallDelta(call.index, call.id, call.function.name, call.function.arguments)
