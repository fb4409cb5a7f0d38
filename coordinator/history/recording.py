"""Listens to a request's choices while they are generated, and keeps each one when it has ended."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from coordinator.history.conversation import Conversation
from coordinator.history.turns import Ending
from coordinator.output.choice import Reply
from coordinator.parsing.message import MessageDelta, MessageParser, ParsedMessage
from coordinator.request import Finish, ScoredPosition


@dataclass(slots=True)
class _Heard:
    """What is known of one choice."""

    texts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    ending: Ending = "cut"


class Recording:
    """The choices of one request. Where parsers read them, what these say is what is kept, and else the text."""

    def __init__(self, conversation: Conversation, prompt: Sequence[int], choices: int, parsed: bool) -> None:
        self._conversation = conversation
        self._prompt = prompt
        self._heard = [_Heard() for _ in range(choices)]
        self._parsed = parsed

    def listen(self, reply: Reply) -> Reply:
        """Return a reply that passes everything on, and is listened to."""
        return _HeardReply(self, reply)

    def listen_to_parser(self, index: int, parser: MessageParser) -> MessageParser:
        """Return a choice's parser that does the same work, and is listened to."""
        return _HeardParser(self, index, parser)

    def hear(self, index: int, text: str, token_ids: Sequence[int], finish: Finish | None) -> None:
        """Take what a choice gained. Without a parser its text is its message."""
        heard = self._heard[index]
        heard.token_ids += token_ids
        if not self._parsed:
            heard.texts.append(text)
        if finish is not None:
            heard.ending = _ending(finish)
            if not self._parsed:
                self.keep(index, {"content": "".join(heard.texts)})

    def keep(self, index: int, message: dict[str, Any]) -> None:
        """Keep a choice that has ended, as this message."""
        heard = self._heard[index]
        reply = {"role": "assistant", **message}
        self._conversation.record(self._prompt, reply, heard.token_ids, heard.ending)


class _HeardReply:
    def __init__(self, recording: Recording, reply: Reply) -> None:
        self._recording = recording
        self._reply = reply
        self.prefilled = reply.prefilled
        self.first_tokens = reply.first_tokens
        self.tokens_of = reply.tokens_of
        self.fail = reply.fail

    def delta(
        self,
        index: int,
        text: str,
        token_ids: list[int],
        finish: Finish | None,
        logprobs: list[ScoredPosition] | None = None,
    ) -> None:
        self._recording.hear(index, text, token_ids, finish)
        self._reply.delta(index, text, token_ids, finish, logprobs)


class _HeardParser:
    def __init__(self, recording: Recording, index: int, parser: MessageParser) -> None:
        self._recording = recording
        self._index = index
        self._parser = parser
        self._said: list[MessageDelta] = []
        self.reasoning_tokens = parser.reasoning_tokens

    def delta(self, text: str, token_ids: list[int], finished: bool) -> MessageDelta | None:
        delta = self._parser.delta(text, token_ids, finished)
        if delta is not None:
            self._said.append(delta)
        if finished:
            self._recording.keep(self._index, _joined(self._said))
        return delta

    def finish_reason(self, reason: str) -> str:
        return self._parser.finish_reason(reason)

    def whole(self, text: str, token_ids: Sequence[int], reason: str) -> ParsedMessage:
        message = self._parser.whole(text, token_ids, reason)
        calls = [call.as_dict() for call in message.tool_calls]
        self._recording.keep(self._index, _message(message.content, message.reasoning, calls))
        return message


def _joined(said: Sequence[MessageDelta]) -> dict[str, Any]:
    calls: dict[int, dict[str, Any]] = {}
    for delta in said:
        for call in delta.tool_calls:
            function = calls.setdefault(call.index, {"name": "", "arguments": ""})
            function["name"] += call.name or ""
            function["arguments"] += call.arguments or ""
    content = "".join(delta.content or "" for delta in said)
    reasoning = "".join(delta.reasoning or "" for delta in said)
    return _message(content, reasoning, [{"type": "function", "function": call} for call in calls.values()])


def _message(content: str | None, reasoning: str | None, calls: list[dict[str, Any]]) -> dict[str, Any]:
    said = {"content": content, "reasoning": reasoning, "tool_calls": calls}
    return {"content": None} | {name: value for name, value in said.items() if value}


def _ending(finish: Finish) -> Ending:
    if finish.reason != "stop":
        return "cut"
    return "string" if isinstance(finish.stop_reason, str) else "token"
