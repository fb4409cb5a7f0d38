"""Tokenizes pairs of texts for cross encoders, with the types of their tokens, and truncates them as vLLM does."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from tokenwire.coordinator.generation.limits import PART_TOKENS
from tokenwire.coordinator.generation.prompts import growing_parts
from tokenwire.coordinator.pooling.types import TextPair
from tokenwire.coordinator.text.tokenizer import INLINE_CHARS, ModelTokenizer
from tokenwire.coordinator.types import ServedModel, Truncation
from tokenwire.errors import InvalidRequest
from tokenwire.process.batches import batches_by_size
from tokenwire.process.threads import in_thread

BATCH_CHARS = 256 * 1024
"""Of texts that are tokenized together: until they are ids, encodings take a hundred bytes for each token."""

EncodedPair = tuple[Sequence[int], int]
"""The ids of a pair, and the position of the first one with the second text's type."""


async def encode_pairs(
    pairs: Sequence[TextPair],
    model: ServedModel,
    truncation: Truncation | None,
    keep: int | None,
    cuts_second: bool = False,
) -> list[EncodedPair]:
    """Return each pair's ids, of which at most `keep` stay. Raises InvalidRequest."""
    encode = partial(_encode, tokenizer=model.tokenizer, truncation=truncation, keep=keep, cuts_second=cuts_second)
    encoded: list[EncodedPair] = []
    for batch in batches_by_size(pairs, _chars, BATCH_CHARS):
        if sum(map(_chars, batch)) <= INLINE_CHARS:
            encoded += encode(batch)
        else:
            encoded += await in_thread(encode, batch)
    return encoded


def _chars(pair: TextPair) -> int:
    return len(pair.first) + len(pair.second)


def _encode(
    pairs: Sequence[TextPair],
    tokenizer: ModelTokenizer,
    truncation: Truncation | None,
    keep: int | None,
    cuts_second: bool,
) -> list[EncodedPair]:
    # An empty second text is none, as in transformers.
    texts = [(pair.first, pair.second) if pair.second else pair.first for pair in pairs]
    try:
        encodings = tokenizer.backend.encode_batch_fast(texts, add_special_tokens=True)
    except TypeError as error:  # the only text without a UTF-8 encoding
        raise InvalidRequest("The input contains an unpaired surrogate.") from error
    found = [(encoding.ids, encoding.type_ids) for encoding in encodings]
    if truncation is None or keep is None:
        return [(ids, _second_begins(types)) for ids, types in found]
    return [
        (ids, _second_begins(types))
        if len(ids) <= keep
        else _truncated(tokenizer, pair, (ids, types), truncation, keep, cuts_second)
        for pair, (ids, types) in zip(pairs, found, strict=True)
    ]


def _truncated(
    tokenizer: ModelTokenizer,
    pair: TextPair,
    whole: tuple[list[int], list[int]],
    truncation: Truncation,
    keep: int,
    cuts_second: bool,
) -> EncodedPair:
    """Cut a side that the request names off the whole; else the longer text, and then both."""
    backend, side = tokenizer.backend, truncation.side
    room = keep - backend.num_special_tokens_to_add(bool(pair.second))
    if side is None and room > 0 and not pair.second:
        first = backend.encode_batch_fast([pair.first], add_special_tokens=False)[0]
        first.truncate(room, direction=truncation.tokenizer_side)
        encoding = backend.post_process(first, None, True)
        return encoding.ids, _second_begins(encoding.type_ids)
    if side is None and room > 0:
        first, second = backend.encode_batch_fast([pair.first, pair.second], add_special_tokens=False)
        lengths = longest_first(len(first.ids), len(second.ids), room)
        if cuts_second:
            if len(first.ids) >= room:
                raise InvalidRequest("The query leaves no room for the document.", param="truncate_prompt_tokens")
            lengths = len(first.ids), room - len(first.ids)
        for encoding, length in zip((first, second), lengths, strict=True):
            encoding.truncate(length, direction=truncation.tokenizer_side)
        encoding = backend.post_process(first, second, True)
        return encoding.ids, _second_begins(encoding.type_ids)
    if not keep:
        return [], 0
    # With less room than special tokens, the tokenizers that vLLM calls truncate nothing, and vLLM cuts what comes.
    ids, types = _specials(backend, bool(pair.second)) if side is None and room == 0 else whole
    part = slice(-keep, None) if (side or truncation.tokenizer_side) == "left" else slice(0, keep)
    return ids[part], _second_begins(types[part])


def _specials(backend: Any, is_pair: bool) -> tuple[list[int], list[int]]:
    encoding = backend.encode_batch_fast([("", "") if is_pair else ""], add_special_tokens=True)[0]
    return encoding.ids, encoding.type_ids


def longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """Return how many tokens of two texts stay where there is room for so many of both together."""
    short, long = min(first, second), max(first, second)
    long = short if short > room else min(long, max(short, room - short))
    if short + long > room:
        short, long = room // 2, room // 2 + room % 2
    return (short, long) if first <= second else (long, short)


def _second_begins(types: Sequence[int]) -> int:
    """Return the position of the first token of type 1; their number if there is none."""
    return types.index(1) if 1 in types else len(types)


def cut_text(tokenizer: ModelTokenizer, text: str, tokens: int) -> str:
    """Return the beginning of a text that has at most so many tokens, without special ones.

    No more of it is encoded than has some more tokens than these, as in `encode_truncated`.
    """

    def encode(part: str) -> Any:
        # Unlike `encode`, the batch form releases the GIL.
        return tokenizer.backend.encode_batch([part], add_special_tokens=False)[0]

    for part in growing_parts(text, tokens, "right"):
        encoding = encode(part)
        if len(encoding.ids) > tokens + PART_TOKENS:
            break
    while len(encoding.ids) > tokens:
        end = min(encoding.offsets[tokens - 1][1], encoding.offsets[tokens][0])
        part = part[: min(end, len(part) - 1)]
        encoding = encode(part)
    return part
