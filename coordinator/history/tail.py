"""What comes behind a reply in the next prompt: rendered by the template with a mark in the reply's place, then cut.

The reply's own ids stand for all that comes before. Behind the mark follows what the template closes the reply with,
then the rest of the conversation. How much of the closing is still to come depends on how the reply ended.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tokenwire.coordinator.history.digests import digest
from tokenwire.coordinator.history.turns import Turn
from tokenwire.coordinator.text.template.messages import parse_arguments
from tokenwire.coordinator.text.template.options import TemplateOptions
from tokenwire.coordinator.text.tokenizer import Tokenizer
from tokenwire.coordinator.types import ServedModel
from tokenwire.errors import InvalidRequest

Messages = Sequence[Mapping[str, Any]]

MARK = "zzTokenwireEndOfReply"
"""Stands for a reply. Where a conversation spells it as well, there is no telling them apart, and no match."""

_TEXT_REPLY = {"role": "assistant", "content": MARK}

# Longer than any added token.
_TOKEN_CHARS = 256


@dataclass(frozen=True, slots=True)
class Target:
    """What a tail is rendered for."""

    model: ServedModel
    options: TemplateOptions
    template_key: bytes
    """Equal where template and values are."""


@dataclass(frozen=True, slots=True)
class _Behind:
    """What the template writes behind a reply."""

    closing: str
    """What it also writes where the conversation ends there."""
    rest: str
    certain: bool
    """Whether the closing is all of that: some templates end conversations in another way, or refuse to."""


class TailRenderer:
    """Renders tails. Remembers how templates close replies, so that a tail takes one rendering."""

    def __init__(self, max_closings: int = 1024) -> None:
        self._max_closings = max_closings
        self._closings: dict[bytes, str | None] = {}

    async def ids_behind(self, turn: Turn, messages: Messages, position: int, target: Target) -> list[int] | None:
        """Return the ids behind a turn whose reply is at a position; None where they are not certain."""
        for marked in _marked(messages, position):
            text = await _behind_mark(marked, target.model, target.options)
            if text is not None:
                return await self._tail(turn, text, marked, position, target)
        return None

    async def _tail(self, turn: Turn, text: str, marked: Messages, position: int, target: Target) -> list[int] | None:
        tokenizer = target.model.tokenizer
        tokens = tokenizer.added_tokens
        calls = bool(marked[position].get("tool_calls"))
        ended = await self._closing(marked[: position + 1], target)
        closing = _common(text, ended or "", tokens)
        behind = _Behind(closing, text[len(closing) :], certain=bool(closing) or ended == "")
        if (tail := await _behind_begun_closing(behind, turn, tokenizer)) is not None:
            return tail
        last = tokenizer.added_token_ids.get(turn.token_ids[-1])
        if last is not None and closing.count(last) == 1:
            # The model left out some of what comes before it in the closing.
            return await _encode(last + closing.rpartition(last)[2] + behind.rest, tokenizer, begun=True)
        if last is not None and turn.ending != "cut" and behind.rest.lstrip().startswith(last):
            # The model stopped at the mark of the next message: such templates have no closer.
            return await _encode(behind.rest.lstrip(), tokenizer, begun=True)
        if turn.ending == "token":
            return await _behind_other_token(behind, tokenizer)
        if calls:
            plain = await self._closing([*marked[:position], _TEXT_REPLY], target)
            behind = replace(behind, closing=_common_end(closing, plain or ""))
        return await _encode(_from_first(tokens, behind.closing) + behind.rest, tokenizer)

    async def _closing(self, marked: Messages, target: Target) -> str | None:
        """Return what the template writes behind the mark where the conversation ends there; None where it will not."""
        content, calls = marked[-1].get("content"), marked[-1].get("tool_calls")
        # What does not hold the mark may come behind it.
        key = digest(target.template_key.hex(), *((None, calls or None) if content == MARK else (content, "calls")))
        if key not in self._closings:
            ended = replace(target.options, add_generation_prompt=False, continue_final_message=False)
            closing = await _behind_mark(marked, target.model, ended)
            if len(self._closings) >= self._max_closings:
                self._closings.clear()
            self._closings[key] = closing
        return self._closings[key]


def _marked(messages: Messages, position: int) -> list[list[Mapping[str, Any]]]:
    """Return the messages with a mark in the reply, in the ways in which templates may show it."""
    reply = messages[position]
    ways: list[Mapping[str, Any]] = []
    calls = reply.get("tool_calls")
    if isinstance(calls, list) and calls and isinstance(calls[-1], Mapping):
        # Behind all other arguments of the last call: names and ids may show up elsewhere too.
        last, function = calls[-1], dict(calls[-1].get("function") or {})
        arguments = {**parse_arguments(function.get("arguments"), "tool_calls"), MARK: ""}
        ways.append({**reply, "tool_calls": [*calls[:-1], {**last, "function": {**function, "arguments": arguments}}]})
    ways.append({**reply, "content": MARK})
    return [[*messages[:position], way, *messages[position + 1 :]] for way in ways]


async def _behind_mark(marked: Messages, model: ServedModel, options: TemplateOptions) -> str | None:
    try:
        text = await model.template.render_messages_async(marked, options)
    except InvalidRequest:
        return None  # whatever is wrong shows better when the messages are rendered as they are
    return text.partition(MARK)[2] if text.count(MARK) == 1 else None


async def _behind_begun_closing(behind: _Behind, turn: Turn, tokenizer: Tokenizer) -> list[int] | None:
    """Return the tail of a reply that ends within the closing, or with it; None where it does not."""
    closing = _from_first(tokenizer.added_tokens, behind.closing)
    ids = await _encode(closing + behind.rest, tokenizer) if closing else None
    if ids is None:
        return None
    most = len(await tokenizer.encode_async(closing, add_special_tokens=False))
    said = turn.message_ids()[-most:].tolist()
    begun = next((count for count in range(min(most, len(said)), 0, -1) if said[-count:] == ids[:count]), 0)
    return ids[begun:] if begun else None


async def _behind_other_token(behind: _Behind, tokenizer: Tokenizer) -> list[int] | None:
    """Return the tail of a reply that the model ended with another token than the template would have."""
    closers = list(tokenizer.added_tokens.finditer(behind.closing))
    if closers:
        return await _encode(behind.closing[closers[-1].start() :] + behind.rest, tokenizer, begun=True)
    return await _encode(behind.rest, tokenizer) if behind.certain else None


def _from_first(tokens: re.Pattern[str], closing: str) -> str:
    """Return a closing from its first added token on, nothing where it has none."""
    first = tokens.search(closing)
    return "" if first is None else closing[first.start() :]


def _common(one: str, other: str, tokens: re.Pattern[str]) -> str:
    """Return what both texts begin with, no added token cut in two."""
    length = _common_length(one, other)
    for text in (one, other):
        for match in tokens.finditer(text, 0, length + _TOKEN_CHARS):
            if match.start() < length < match.end():
                length = match.start()
    return one[:length]


def _common_end(one: str, other: str) -> str:
    """Return what both texts end with."""
    return one[len(one) - _common_length(one[::-1], other[::-1]) :]


def _common_length(one: str, other: str) -> int:
    pairs = zip(one, other, strict=False)
    return next((i for i, (left, right) in enumerate(pairs) if left != right), min(len(one), len(other)))


async def _encode(text: str, tokenizer: Tokenizer, begun: bool = False) -> list[int] | None:
    """Encode a tail, which is exact behind any text if it begins with a token that is found wherever it stands.

    begun: whether the reply has this token already, or another one in its place.
    """
    first = tokenizer.added_tokens.match(text)
    if first is None or not tokenizer.cuts_at(first.group()):
        return None
    ids = await tokenizer.encode_async(text, add_special_tokens=False)
    return ids[1:] if begun else ids
