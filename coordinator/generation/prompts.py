"""Turns prompts of every kind into ids: renders, tokenizes, truncates."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

from tokenwire.coordinator.generation.limits import (
    LONG_TEXT_CHARS,
    PART_TOKENS,
    check_ids,
    check_text_length,
    check_token_count,
)
from tokenwire.coordinator.history.request_history import RequestHistory
from tokenwire.coordinator.history.token_history import TokenHistory
from tokenwire.coordinator.media.content import MediaPrompt
from tokenwire.coordinator.text.tokenizer import INLINE_CHARS, ModelTokenizer
from tokenwire.coordinator.types import ChatPrompt, KnownPrefix, Prompt, ServedModel, TokenPrompt, Truncation
from tokenwire.errors import InvalidRequest
from tokenwire.process.threads import in_thread
from tokenwire.process.value_class import value_class

_LEAST_PART_CHARS = 2**16
_CHARS_PER_TOKEN = 8
"""Of the first part of a long text that is tokenized to keep some tokens: most texts have fewer characters in each."""


@value_class
class PreparedPrompt:
    """A prompt as a worker gets it."""

    token_ids: Sequence[int]
    text: str | None
    """The tokenized text; None for a prompt sent as ids, or one that begins with ids of earlier turns."""
    history: RequestHistory | None = None
    """What it reuses of its conversation, if it may reuse ids."""
    media: MediaPrompt | None = None
    """The media that it has, and the ids that its worker gets: its own are expanded."""
    reused: int = 0
    """How many of its ids are those of an earlier prompt and completion."""
    chat: ChatPrompt | None = None
    """What is kept of a chat with pictures: their digests in their places, not their bytes once more, and encoded."""

    @property
    def is_tokenized(self) -> bool:
        """Whether all ids are the tokenizer's."""
        return self.text is not None and self.media is None

    @property
    def new_ids(self) -> Sequence[int]:
        """The ids after the last finished reply: reasoning before them does not concern this reply."""
        continued = None if self.history is None else self.history.new_ids
        return self.token_ids if continued is None else continued


async def prepare_prompt(
    prompt: Prompt,
    model: ServedModel,
    truncation: Truncation | None = None,
    max_tokens: int = 0,
    history: TokenHistory | None = None,
    must_fit: bool = False,
) -> PreparedPrompt:
    """Turn a prompt into ids. Raises InvalidRequest if the template rejects the messages or the text is too long.

    max_tokens: the requested maximum, 0 if none; a truncation to "what fits" then leaves space for one token.
    history: earlier turns whose ids chats reuse; not used with special tokens or a truncation.
    must_fit: whether a text that is certain to have too many tokens may be rejected before they are counted.
    """
    opened = None
    if history is not None and isinstance(prompt, ChatPrompt) and prompt.history is not None:
        opened = await _open_history(prompt, prompt.history.prefix, model, truncation, history)
    if opened is not None and opened.token_ids is not None:
        prepared = PreparedPrompt(opened.token_ids, None, opened, reused=opened.reused)
    else:
        prepared = await _prepare(prompt, model, truncation, max_tokens, must_fit)
        if opened is not None:
            prepared = replace(prepared, history=opened)
    if isinstance(prompt, ChatPrompt) and prompt.history is not None and prompt.history.prefix is not None:
        _check_prefix(prepared, prompt.history.prefix)
    return prepared


async def _open_history(
    prompt: ChatPrompt,
    prefix: KnownPrefix | None,
    model: ServedModel,
    truncation: Truncation | None,
    history: TokenHistory,
) -> RequestHistory | None:
    # A truncated prompt, or one framed by special tokens, is not the beginning of the next one.
    if truncation is not None or prompt.add_special_tokens:
        return None
    if prefix is not None:
        check_ids(prefix.token_ids, model, prefix.param)
    return await history.open(prompt, model)


def _check_prefix(prepared: PreparedPrompt, prefix: KnownPrefix) -> None:
    count = len(prefix.token_ids)
    if prefix.required and list(prepared.token_ids[:count]) != list(prefix.token_ids):
        raise InvalidRequest(
            f"The prompt of these messages cannot begin with the {count} ids of `{prefix.param}`.", param=prefix.param
        )


async def _prepare(
    prompt: Prompt, model: ServedModel, truncation: Truncation | None, max_tokens: int, must_fit: bool
) -> PreparedPrompt:
    keep = 0 if truncation is None else _truncated_length(truncation, max_tokens, model)
    if isinstance(prompt, TokenPrompt):
        token_ids = prompt.token_ids
        return PreparedPrompt(token_ids if truncation is None else kept_ids(token_ids, truncation, keep), None)
    if isinstance(prompt, ChatPrompt):
        text = await model.template.render_messages_async(prompt.messages, prompt.options)
        add_special_tokens = prompt.add_special_tokens
    else:
        text, add_special_tokens = prompt.text, prompt.add_special_tokens
    if truncation is None:
        check_text_length(text, model)
        if must_fit and len(text) > LONG_TEXT_CHARS:
            await in_thread(check_token_count, text, model)
        return PreparedPrompt(await model.tokenizer.encode_async(text, add_special_tokens), text)
    encode = partial(encode_truncated, model.tokenizer, text, add_special_tokens, truncation, keep)
    return PreparedPrompt(encode() if len(text) <= INLINE_CHARS else await in_thread(encode), text)


def kept_ids(token_ids: Sequence[int], truncation: Truncation, keep: int) -> Sequence[int]:
    """Return the ids that a truncation leaves, special tokens like others."""
    if keep >= len(token_ids):
        return token_ids
    if not keep:
        return []
    return token_ids[:keep] if _side_of(truncation) == "right" else token_ids[-keep:]


def _side_of(truncation: Truncation) -> str:
    return truncation.side or truncation.tokenizer_side


def encode_truncated(
    tokenizer: ModelTokenizer, text: str, add_special_tokens: bool, truncation: Truncation, keep: int
) -> Sequence[int]:
    """Encode as much of a text as has more tokens than are kept: the cut is far from those that stay.

    So ids are those of the whole text, but for one without the end of a word for thousands of characters.
    """

    def encode(part: str) -> tuple[int, Sequence[int]]:
        """Return the number of a part's tokens, and those that are kept."""
        if truncation.side is None:
            return _encode_side(tokenizer, part, add_special_tokens, keep, truncation.tokenizer_side)
        token_ids = tokenizer.encode(part, add_special_tokens)  # the whole, then cut, as vLLM does
        return len(token_ids), kept_ids(token_ids, truncation, keep)

    for part in growing_parts(text, keep, _side_of(truncation)):
        tokens, token_ids = encode(part)
        if tokens > keep + PART_TOKENS:
            break
    return token_ids


def growing_parts(text: str, tokens: int, cut_side: str) -> Iterator[str]:
    """Yield ever larger parts of a text that may have so many tokens, the last one the whole text."""
    chars = max(_LEAST_PART_CHARS, _CHARS_PER_TOKEN * tokens)
    while len(text) > chars:
        yield text[:chars] if cut_side == "right" else text[-chars:]
        chars *= 4
    yield text


def _encode_side(
    tokenizer: ModelTokenizer, text: str, add_special_tokens: bool, keep: int, cut_side: Literal["left", "right"]
) -> tuple[int, Sequence[int]]:
    """Return the number of a text's tokens, and those that a cut leaves, with the special tokens around them."""
    backend = tokenizer.backend
    encoding = backend.encode_batch_fast([text], add_special_tokens=False)[0]
    tokens = len(encoding.ids)
    added = backend.num_special_tokens_to_add(False) if add_special_tokens else 0
    if keep < tokens + added:
        if not keep:
            return tokens, []
        if keep <= added:
            raise InvalidRequest(
                f"truncate_prompt_tokens={keep} must be greater than the number of special tokens, {added}.",
                param="truncate_prompt_tokens",
            )
        encoding.truncate(keep - added, direction=cut_side)
    return tokens, list(backend.post_process(encoding, None, add_special_tokens).ids)


def _truncated_length(truncation: Truncation, max_tokens: int, model: ServedModel) -> int:
    """Return how many tokens of a prompt to keep at most. Raises InvalidRequest."""
    if truncation.length > model.max_model_len:
        raise InvalidRequest(
            f"truncate_prompt_tokens={truncation.length} cannot be greater than max_model_len = {model.max_model_len}. "
            "Please request a smaller truncation size.",
            param="truncate_prompt_tokens",
        )
    if truncation.length >= 0:
        return truncation.length
    return model.max_model_len - 1 if max_tokens else model.max_model_len
