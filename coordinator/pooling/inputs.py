"""Turns inputs of every kind into ids: renders, tokenizes in batches, truncates, checks."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from tokenwire.coordinator.generation.limits import (
    LONG_TEXT_CHARS,
    check_ids,
    check_text_length,
    check_token_count,
)
from tokenwire.coordinator.generation.prompts import encode_truncated, kept_ids
from tokenwire.coordinator.pooling.pairs import BATCH_CHARS, EncodedPair, encode_pairs
from tokenwire.coordinator.pooling.types import Input, PoolingRequest, TextPair
from tokenwire.coordinator.types import ServedModel, TextPrompt, TokenPrompt, Truncation
from tokenwire.errors import InvalidRequest
from tokenwire.process.batches import batches_by_size
from tokenwire.process.threads import in_thread

_WHOLE_CHARS = 64 * 1024
"""Longer texts are truncated before they are tokenized as a whole, if they are to be."""
_INPUTS_BETWEEN_YIELDS = 256


@dataclass(slots=True)
class PreparedInputs:
    """Inputs as workers get them."""

    token_ids: list[Sequence[int]]
    """Of each."""
    second_begins: list[int]
    """Where the second text of each begins; empty unless they are pairs with types."""


async def prepare_inputs(request: PoolingRequest, model: ServedModel) -> PreparedInputs:
    """Turn the inputs of a request into ids. Raises InvalidRequest."""
    if not request.inputs:
        raise InvalidRequest("You must pass at least one prompt", param="input")
    limit = model.max_model_len if request.max_tokens is None else request.max_tokens
    if request.truncation is not None:
        _check_truncation(request.truncation, model)
    token_ids: list[Sequence[int] | None] = [None] * len(request.inputs)
    texts: dict[int, str] = {}
    pairs: list[TextPair] = []
    for position, each in enumerate(request.inputs):
        if isinstance(each, TextPrompt):
            texts[position] = each.text
        elif isinstance(each, TokenPrompt):
            token_ids[position] = _ids_of(each, request.truncation, limit)
        elif isinstance(each, TextPair):
            pairs.append(each)
        else:
            texts[position] = await model.template.render_messages_async(each.messages, each.options)
        if position % _INPUTS_BETWEEN_YIELDS == _INPUTS_BETWEEN_YIELDS - 1:
            await asyncio.sleep(0)
    if pairs:
        return await _prepare_pairs(pairs, request, model, limit)
    await _prepare_texts(texts, model, request, limit)
    for batch in _batches(texts, request.truncation is not None):
        token_ids_of_batch = await _encode(batch, model, request, limit)
        for position, ids in zip(batch, token_ids_of_batch, strict=True):
            token_ids[position] = ids
    found = [ids for ids in token_ids if ids is not None]
    padding = _padding(request, model, limit)
    for position, ids in enumerate(found):
        if padding is not None:
            found[position] = ids = [*ids, *[padding] * (limit - len(ids))]
        given = request.inputs[position]
        if not 0 < len(ids) <= limit or isinstance(given, TokenPrompt):
            _check_input(given, ids, model, limit)
    return PreparedInputs(found, [])


async def _prepare_pairs(
    pairs: Sequence[TextPair], request: PoolingRequest, model: ServedModel, limit: int
) -> PreparedInputs:
    """Turn pairs of texts into ids and the positions of their second texts."""
    for pair in pairs:
        for text in (pair.first, pair.second):
            if request.truncation is None:
                check_text_length(text, model, limit)
    keep = None if request.truncation is None else _kept(request.truncation, limit)
    encoded = await encode_pairs(pairs, model, request.truncation, keep, request.cuts_second)
    for given, (ids, _) in zip(request.inputs, encoded, strict=True):
        _check_input(given, ids, model, limit)
    padding = _padding(request, model, limit)
    if padding is not None:
        encoded = [_padded(pair, padding, limit) for pair in encoded]
    types = model.pooling is not None and model.pooling.token_types
    return PreparedInputs([ids for ids, _ in encoded], [begins for _, begins in encoded] if types else [])


def _padded(pair: EncodedPair, padding: int, limit: int) -> EncodedPair:
    """Return a pair that is filled up; what fills it has the type of its last token."""
    ids, begins = pair
    return [*ids, *[padding] * (limit - len(ids))], limit if begins == len(ids) else begins


async def _prepare_texts(texts: dict[int, str], model: ServedModel, request: PoolingRequest, limit: int) -> None:
    """Put texts in the form that is tokenized. Raises InvalidRequest if one is too long."""
    if model.pooling is not None and model.pooling.lower_case:
        for position, text in texts.items():
            texts[position] = text.lower()
    if request.truncation is not None or not texts:
        return
    longest = max(texts.values(), key=len)
    check_text_length(longest, model, limit)
    if len(longest) > LONG_TEXT_CHARS:
        for text in texts.values():
            if len(text) > LONG_TEXT_CHARS:
                await in_thread(check_token_count, text, model)


def _batches(texts: dict[int, str], truncated: bool) -> Iterator[dict[int, str]]:
    """Yield the texts in parts that are tokenized together; one that is long and to be truncated by itself."""
    alone = {position: text for position, text in texts.items() if truncated and len(text) > _WHOLE_CHARS}
    yield from ({position: text} for position, text in alone.items())
    together = [each for each in texts.items() if each[0] not in alone]
    yield from (dict(batch) for batch in batches_by_size(together, lambda each: len(each[1]), BATCH_CHARS))


async def _encode(
    batch: dict[int, str], model: ServedModel, request: PoolingRequest, limit: int
) -> list[Sequence[int]]:
    """Return the ids of each text of a batch, truncated if that is requested."""
    texts, truncation = list(batch.values()), request.truncation
    if truncation is None:
        return [*await model.tokenizer.encode_many_async(texts, request.add_special_tokens)]
    keep = _kept(truncation, limit)
    truncate = partial(_truncate, model, request.add_special_tokens, truncation, keep)
    if len(texts) == 1 and len(texts[0]) > _WHOLE_CHARS:
        return [await in_thread(truncate, texts[0])]
    whole = await model.tokenizer.encode_many_async(texts, request.add_special_tokens)
    if all(len(ids) <= keep for ids in whole):
        return [*whole]
    pairs = zip(texts, whole, strict=True)
    return await in_thread(lambda: [ids if len(ids) <= keep else truncate(text) for text, ids in pairs])


def _truncate(model: ServedModel, special: bool, truncation: Truncation, keep: int, text: str) -> Sequence[int]:
    added = model.tokenizer.backend.num_special_tokens_to_add(False) if special else 0
    if truncation.side is None and keep <= added:  # then vLLM cuts these too
        return kept_ids(model.tokenizer.encode("", special), truncation, keep)
    return encode_truncated(model.tokenizer, text, special, truncation, keep) if keep else []


def _check_truncation(truncation: Truncation, model: ServedModel) -> None:
    if truncation.length > model.max_model_len:
        raise InvalidRequest(
            "truncate_prompt_tokens value is greater than max_model_len. Please request a smaller truncation size.",
            param="truncate_prompt_tokens",
        )


def _kept(truncation: Truncation, limit: int) -> int:
    return limit if truncation.length < 0 else truncation.length


def _ids_of(prompt: TokenPrompt, truncation: Truncation | None, limit: int) -> Sequence[int]:
    return prompt.token_ids if truncation is None else kept_ids(prompt.token_ids, truncation, _kept(truncation, limit))


def _padding(request: PoolingRequest, model: ServedModel, limit: int) -> int | None:
    """Return the id that fills inputs up; None if they are left as they are. Raises InvalidRequest."""
    if not request.pads:
        return None
    if model.pooling is None or not model.pooling.HasField("pad_token_id"):
        raise InvalidRequest("This model's tokenizer has no padding token.", param="padding")
    return model.pooling.pad_token_id


def _check_input(given: Input, token_ids: Sequence[int], model: ServedModel, limit: int) -> None:
    """Check the ids of an input. Raises InvalidRequest."""
    if not token_ids:
        raise InvalidRequest("The decoder prompt cannot be empty", param="input")
    if isinstance(given, TokenPrompt):
        check_ids(token_ids, model, given.param)
    if len(token_ids) > limit:
        # vLLM tokenizes no more of a text than it takes to see that it is too long.
        counted = len(token_ids) if isinstance(given, TokenPrompt) else limit + 1
        how_exact = "at least " if counted == limit + 1 else ""
        raise InvalidRequest(
            f"This model's maximum context length is {limit} tokens. However, your prompt contains {how_exact}"
            f"{counted} input tokens, which exceeds this limit even without any output tokens. Please reduce the "
            "length of the input prompt.",
            param="input_tokens",
        )
