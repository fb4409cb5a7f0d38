"""Chat calls with scripted parsers, and readers of their streams."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.coordinator.fakes import served_model
from tokenwire.coordinator.api.message_parts import PartRenderer, PartStream
from tokenwire.coordinator.api.openai.chat import ChatCall
from tokenwire.coordinator.api.openai.chat_request import ChatCompletionRequest
from tokenwire.coordinator.generation.prompts import PreparedPrompt
from tokenwire.coordinator.generation.service import PreparedRequest
from tokenwire.coordinator.http.connection import ignore
from tokenwire.coordinator.output.collect import CollectedChoice
from tokenwire.coordinator.output.settings import ApiSettings
from tokenwire.coordinator.output.sse import ChunkOutput
from tokenwire.coordinator.parsing.message import MOST_INLINE, MessageDelta, ParsedMessage, ToolCallDelta
from tokenwire.coordinator.parsing.rules import MessageRules
from tokenwire.coordinator.types import Finish, GenerationRequest, Prefill, TokenPrompt, Usage
from tokenwire.v1 import inference_pb2 as pb

STOP = Finish("stop")
UNCACHED = Prefill(0)


class ScriptedMessageParser:
    """Returns one delta per step; half of all tokens are reasoning."""

    def __init__(self, deltas: Sequence[MessageDelta | None], on_delta: Callable[[], None] = ignore) -> None:
        """on_delta: called with each, by the thread that parses it."""
        self.waiting = 0
        self.counted = 0
        """Tokens that were counted, as often as they were."""
        self._tokens = 0
        self._deltas: Iterator[MessageDelta | None] = iter(deltas)
        self._on_delta = on_delta

    def takes_long(self, text: str, token_ids: list[int], finished: bool) -> bool:
        """Parse what waits with each delta, and everything again with the last one."""
        return (self._tokens if finished else self.waiting) + len(token_ids) > MOST_INLINE

    def delta(self, text: str, token_ids: list[int], finished: bool) -> MessageDelta | None:
        """Return the next delta."""
        self._tokens += len(token_ids)
        self._on_delta()
        return next(self._deltas)

    def finish_reason(self, reason: str) -> str:
        """Return it unchanged."""
        return reason

    def full(self, text: str, token_ids: Sequence[int], reason: str, texts: Sequence[str] = ()) -> ParsedMessage:
        """Return the text as content."""
        return ParsedMessage(text, None, (), reason)

    def reasoning_tokens(self, token_ids: Sequence[int]) -> int:
        """Return half of the tokens."""
        self.counted += len(token_ids)
        return len(token_ids) // 2


@dataclass
class ScriptedPlan:
    """A plan with one scripted parser."""

    deltas: Sequence[MessageDelta | None]
    rules: MessageRules = field(default_factory=lambda: MessageRules(tool_choice="auto", parses_tools=True))
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    structured_outputs: pb.StructuredOutputs | None = None
    reasoning_parser_kwargs: dict[str, Any] | None = None
    prompt_token_ids: Sequence[int] | None = None
    on_parser: Callable[[], None] = ignore
    """Called when a parser is made, by the thread that it parses in."""
    on_delta: Callable[[], None] = ignore
    """Called with each delta, likewise."""

    def reasoning_ended(self, prompt_token_ids: Sequence[int]) -> bool | None:
        """Return None, which leaves it to the engine."""
        return None

    def parser(self, prompt_token_ids: Sequence[int]) -> ScriptedMessageParser:
        """Return the parser."""
        self.on_parser()
        return ScriptedMessageParser(self.deltas, self.on_delta)


def call_of(
    deltas: Sequence[MessageDelta | None] | None = None, api: ApiSettings | None = None, **body: Any
) -> ChatCall:
    """Return a call whose parser returns these deltas, one per step; None: without a parser."""
    request = GenerationRequest(
        "id-1", "digits", [TokenPrompt([1, 2])], pb.SamplingParams(temperature=0.5, top_p=1, max_tokens=9)
    )
    prepared = PreparedRequest(request, served_model(), request.sampling, [PreparedPrompt([1, 2], "one two")], [9])
    chat = ChatCompletionRequest(messages=[{"role": "user", "content": "one two"}], **body)
    plan = None if deltas is None else ScriptedPlan(deltas)
    return ChatCall(chat, api or ApiSettings(), prepared, plan, deltas is not None, 7)


def tool_call(index: int, arguments: str | None = None, name: str | None = None) -> MessageDelta:
    """Return a delta of a tool call; the first one of a call has a name."""
    first = {"id": f"call_{index}", "name": name} if name is not None else {}
    return MessageDelta(tool_calls=(ToolCallDelta(index, arguments=arguments, **first),))


@dataclass(frozen=True)
class ServerSentEvent:
    """One server-sent event."""

    kind: str
    data: dict[str, Any] = field(compare=False)


def events_of(data: bytes) -> list[ServerSentEvent]:
    """Return the events of a stream, whose data repeats their names."""
    events = []
    for block in data.decode().split("\n\n")[:-1]:
        name, body = block.split("\n", 1)
        event = ServerSentEvent(name.removeprefix("event: "), json.loads(body.removeprefix("data: ")))
        assert event.data["type"] == event.kind
        events.append(event)
    return events


def streamed(
    call: ChatCall,
    renderer: PartRenderer,
    steps: Sequence[str],
    finish: Finish = STOP,
    prefill: Prefill = UNCACHED,
) -> list[ServerSentEvent]:
    """Stream a call with these texts, one step and one token each; the last one has the finish."""
    stream = PartStream(call, renderer)
    stream.prefilled(0, prefill)
    data = b"".join(stream.opening())
    for i, text in enumerate(steps):
        data += bytes_of(stream.delta(0, text, [i], finish if i == len(steps) - 1 else None))
    closing = stream.closing(Usage(2, len(steps)))
    data += closing if isinstance(closing, bytes) else b"".join(closing)
    return events_of(data + stream.ending)


def bytes_of(rendered: ChunkOutput) -> bytes:
    """Return output that comes at once."""
    assert isinstance(rendered, bytes)
    return rendered


def choice_of(text: str, finish: Finish = STOP, tokens: int = 4) -> CollectedChoice:
    """Return a finished choice."""
    return CollectedChoice(text, [], list(range(tokens)), finish, Prefill(1))
