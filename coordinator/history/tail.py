"""Renders the tail of a prompt after a reply: with a placeholder in the reply's place, after which the text is cut.

The reply's own ids replace everything before. The placeholder is followed by the template's closing of the reply,
then by the rest of the conversation. How much of the closing is still needed depends on how the reply ended.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tokenwire.coordinator.history.digests import digest
from tokenwire.coordinator.history.turns import Turn
from tokenwire.coordinator.text.template.messages import parse_arguments
from tokenwire.coordinator.text.template.template_options import TemplateOptions
from tokenwire.coordinator.text.tokenizer import ModelTokenizer
from tokenwire.coordinator.types import ServedModel
from tokenwire.errors import InvalidRequest

Messages = Sequence[Mapping[str, Any]]

PLACEHOLDER = "zzTokenwireEndOfReply"
"""Stands for a reply. A conversation that contains it itself is ambiguous, and has no tail."""

_TEXT_REPLY = {"role": "assistant", "content": PLACEHOLDER}

# Longer than any added token.
_TOKEN_CHARS = 256


@dataclass(frozen=True, slots=True)
class Target:
    """The model and template options for which a tail is rendered."""

    model: ServedModel
    options: TemplateOptions
    template_key: bytes
    """Equal if the template and its values are."""


@dataclass(frozen=True, slots=True)
class _Suffix:
    """What the template renders after a reply."""

    closing: str
    """The part that it also renders if the conversation ends there."""
    rest: str
    certain: bool
    """Whether the closing is all of that: some templates end conversations differently, or refuse to."""


class TailRenderer:
    """Renders tails. Caches how templates close replies, so that a tail takes one rendering."""

    def __init__(self, max_closings: int = 1024) -> None:
        self._max_closings = max_closings
        self._closings: dict[bytes, str | None] = {}

    async def ids_after(self, turn: Turn, messages: Messages, position: int, target: Target) -> list[int] | None:
        """Return the ids after a turn whose reply is at a position; None if they are not certain, or too many."""
        model = target.model
        most_chars = model.max_model_len * model.tokenizer.max_chars_per_token
        for marked in _with_placeholder(messages, position):
            text = await _after_placeholder(marked, model, target.options)
            if text is not None and len(text) > most_chars:
                return None  # the whole prompt is longer, and rejected before it is tokenized
            if text is not None:
                return await self._tail(turn, text, marked, position, target)
        return None

    async def _tail(self, turn: Turn, text: str, marked: Messages, position: int, target: Target) -> list[int] | None:
        tokenizer = target.model.tokenizer
        tokens = tokenizer.added_tokens
        calls = bool(marked[position].get("tool_calls"))
        ended = await self._closing(marked[: position + 1], target)
        closing = _common(text, ended or "", tokens)
        suffix = _Suffix(closing, text[len(closing) :], certain=bool(closing) or ended == "")
        if (tail := await _after_partial_closing(suffix, turn, tokenizer)) is not None:
            return tail
        last = tokenizer.added_token_ids.get(turn.token_ids[-1])
        if last is not None and closing.count(last) == 1:
            # The model omitted some of what precedes it in the closing.
            return await _encode(last + closing.rpartition(last)[2] + suffix.rest, tokenizer, has_first=True)
        own = closing  # without what belongs to the calls
        if calls:
            plain = await self._closing([*marked[:position], _TEXT_REPLY], target)
            own = _common_end(closing, plain or "")
        own = _from_first(tokens, own)
        if not own and last is not None and turn.ending != "cut" and suffix.rest.lstrip().startswith(last):
            # The model stopped at the token that begins the next message, which ends replies without a closing.
            return await _encode(suffix.rest.lstrip(), tokenizer, has_first=True)
        if turn.ending == "token":
            return await _after_other_token(suffix, tokenizer)
        return await _encode(own + suffix.rest, tokenizer)

    async def _closing(self, marked: Messages, target: Target) -> str | None:
        """Return what the template renders after the placeholder if the conversation ends there; None if it fails."""
        content, calls = marked[-1].get("content"), marked[-1].get("tool_calls")
        # The parts without the placeholder may follow it.
        key = digest(
            target.template_key.hex(), *((None, calls or None) if content == PLACEHOLDER else (content, "calls"))
        )
        if key not in self._closings:
            ended = replace(target.options, add_generation_prompt=False, continue_final_message=False)
            closing = await _after_placeholder(marked, target.model, ended)
            if len(self._closings) >= self._max_closings:
                self._closings.clear()
            self._closings[key] = closing
        return self._closings[key]


def _with_placeholder(messages: Messages, position: int) -> list[list[Mapping[str, Any]]]:
    """Return the messages with a placeholder in the reply, in the ways in which templates may render it."""
    reply = messages[position]
    ways: list[Mapping[str, Any]] = []
    calls = reply.get("tool_calls")
    if isinstance(calls, list) and calls and isinstance(calls[-1], Mapping):
        # After all other arguments of the last call: names and ids may be rendered elsewhere too.
        last, function = calls[-1], dict(calls[-1].get("function") or {})
        arguments = {**parse_arguments(function.get("arguments"), "tool_calls"), PLACEHOLDER: ""}
        ways.append({**reply, "tool_calls": [*calls[:-1], {**last, "function": {**function, "arguments": arguments}}]})
    ways.append({**reply, "content": PLACEHOLDER})
    return [[*messages[:position], way, *messages[position + 1 :]] for way in ways]


async def _after_placeholder(marked: Messages, model: ServedModel, options: TemplateOptions) -> str | None:
    try:
        text = await model.template.render_messages_async(marked, options)
    except InvalidRequest:
        return None  # rendering the original messages reports it better
    return text.partition(PLACEHOLDER)[2] if text.count(PLACEHOLDER) == 1 else None


async def _after_partial_closing(suffix: _Suffix, turn: Turn, tokenizer: ModelTokenizer) -> list[int] | None:
    """Return the tail of a reply that ends within the closing, or with it; None if it does not."""
    closing = _from_first(tokenizer.added_tokens, suffix.closing)
    ids = await _encode(closing + suffix.rest, tokenizer) if closing else None
    if ids is None:
        return None
    most = len(await tokenizer.encode_async(closing, add_special_tokens=False))
    reply_end = turn.message_ids()[-most:].tolist()
    overlap = next((count for count in range(min(most, len(reply_end)), 0, -1) if reply_end[-count:] == ids[:count]), 0)
    return ids[overlap:] if overlap else None


async def _after_other_token(suffix: _Suffix, tokenizer: ModelTokenizer) -> list[int] | None:
    """Return the tail of a reply that the model ended with another token than the template's."""
    closers = list(tokenizer.added_tokens.finditer(suffix.closing))
    if closers:
        return await _encode(suffix.closing[closers[-1].start() :] + suffix.rest, tokenizer, has_first=True)
    return await _encode(suffix.rest, tokenizer) if suffix.certain else None


def _from_first(tokens: re.Pattern[str], closing: str) -> str:
    """Return a closing from its first added token on, "" if it has none."""
    first = tokens.search(closing)
    return "" if first is None else closing[first.start() :]


def _common(one: str, other: str, tokens: re.Pattern[str]) -> str:
    """Return the common prefix of both texts, without cutting an added token."""
    length = _common_length(one, other)
    for text in (one, other):
        for match in tokens.finditer(text, 0, length + _TOKEN_CHARS):
            if match.start() < length < match.end():
                length = match.start()
    return one[:length]


def _common_end(one: str, other: str) -> str:
    """Return the common suffix of both texts."""
    return one[len(one) - _common_length(one[::-1], other[::-1]) :]


def _common_length(one: str, other: str) -> int:
    pairs = zip(one, other, strict=False)
    return next((i for i, (left, right) in enumerate(pairs) if left != right), min(len(one), len(other)))


async def _encode(text: str, tokenizer: ModelTokenizer, has_first: bool = False) -> list[int] | None:
    """Encode a tail, which is exact after any text if it begins with a token that is recognized anywhere.

    `has_first`: whether the reply already has this token, or another one in its place.
    """
    first = tokenizer.added_tokens.match(text)
    if first is None or not tokenizer.can_cut_before(first.group()):
        return None
    ids = await tokenizer.encode_async(text, add_special_tokens=False)
    return list(ids[1:] if has_first else ids)
