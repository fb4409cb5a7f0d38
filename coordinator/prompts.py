"""Prompts of every kind to ids: renders, tokenizes, truncates."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.limits import check_text_length, truncated_length
from coordinator.models import ServedModel
from coordinator.request import ChatPrompt, Prompt, TokenPrompt, Truncation
from coordinator.text.tokenizer import INLINE_CHARS, Tokenizer
from tokenwire.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class PreparedPrompt:
    """A prompt as a worker gets it."""

    token_ids: Sequence[int]
    text: str | None
    """What was tokenized; None for a prompt that came as ids."""


async def prepare_prompt(
    prompt: Prompt, model: ServedModel, truncation: Truncation | None = None, max_tokens: int = 0
) -> PreparedPrompt:
    """Turn a prompt into ids. Raises InvalidRequest where the template refuses the messages, or the text is too long.

    max_tokens: what the request asked for, 0 if nothing; a truncation to "what fits" then leaves room for a token.
    """
    keep = None if truncation is None else truncated_length(truncation, max_tokens, model)
    if isinstance(prompt, TokenPrompt):
        token_ids = prompt.token_ids
        return PreparedPrompt(token_ids if truncation is None else _cut(token_ids, truncation, keep), None)
    if isinstance(prompt, ChatPrompt):
        text = await model.template.render_messages_async(prompt.messages, prompt.options)
        add_special_tokens = prompt.add_special_tokens
    else:
        text, add_special_tokens = prompt.text, prompt.add_special_tokens
    if truncation is None:
        check_text_length(text, model)
        return PreparedPrompt(await model.tokenizer.encode_async(text, add_special_tokens), text)
    return PreparedPrompt(await _encode_truncated(model.tokenizer, text, add_special_tokens, truncation, keep), text)


def _cut(token_ids: Sequence[int], truncation: Truncation, keep: int | None) -> Sequence[int]:
    if keep is None or keep >= len(token_ids):
        return token_ids
    if not keep:
        return []
    return token_ids[:keep] if truncation.side == "right" else token_ids[-keep:]


async def _encode_truncated(
    tokenizer: Tokenizer, text: str, add_special_tokens: bool, truncation: Truncation, keep: int | None
) -> Sequence[int]:
    if truncation.side is not None:
        return _cut(await tokenizer.encode_async(text, add_special_tokens), truncation, keep)
    if len(text) <= INLINE_CHARS:
        return _encode_end(tokenizer, text, add_special_tokens, keep)
    return await asyncio.to_thread(_encode_end, tokenizer, text, add_special_tokens, keep)


def _encode_end(tokenizer: Tokenizer, text: str, add_special_tokens: bool, keep: int | None) -> list[int]:
    """Encode, keeping the end of the text and the special tokens around it."""
    backend = tokenizer.backend
    encoding = backend.encode_batch_fast([text], add_special_tokens=False)[0]
    added = backend.num_special_tokens_to_add(False) if add_special_tokens else 0
    if keep is not None and keep < len(encoding.ids) + added:
        if not keep:
            return []
        if keep <= added:
            raise InvalidRequest(
                f"truncate_prompt_tokens={keep} leaves no room beside {added} special tokens.",
                param="truncate_prompt_tokens",
            )
        encoding.truncate(keep - added, direction="left")
    return list(backend.post_process(encoding, None, add_special_tokens).ids)
