"""Scores of pairs of texts, by the cosine of their embeddings or by a cross encoder, and their order."""

import asyncio
import math
from collections.abc import Mapping, Sequence
from functools import partial
from operator import mul
from typing import Any

from tokenwire.coordinator.generation.limits import lacks_route
from tokenwire.coordinator.pooling.pairs import cut_text
from tokenwire.coordinator.pooling.types import Input, Results, TextPair
from tokenwire.coordinator.text.template.template_options import TemplateOptions
from tokenwire.coordinator.text.tokenizer import INLINE_CHARS, ModelTokenizer
from tokenwire.coordinator.types import ChatPrompt, ServedModel, TextPrompt
from tokenwire.errors import InvalidRequest
from tokenwire.process.threads import in_thread
from tokenwire.process.value_class import value_class

_LEAST_NORM = 1e-8
"""Of a vector: torch's own, so that nothing is divided by zero."""
_VECTORS_BETWEEN_YIELDS = 8


@value_class
class ScoredTexts:
    """Texts to be scored in pairs: each first one with its second, or one with all."""

    first: Sequence[str]
    second: Sequence[str]

    def check(self) -> None:
        """Check that they can be paired. Raises InvalidRequest."""
        if len(self.first) > 1 and len(self.first) != len(self.second):
            raise InvalidRequest("Input lengths must be either 1:1, 1:N or N:N")
        if not self.first:
            raise InvalidRequest("At least one text element must be given")
        if not self.second:
            raise InvalidRequest("At least one text_pair element must be given")

    async def cut(self, model: ServedModel, first_tokens: int, second_tokens: int) -> "ScoredTexts":
        """Return the texts with at most so many tokens each; 0: any number. Raises InvalidRequest."""
        for name, limit in (("max_tokens_per_query", first_tokens), ("max_tokens_per_doc", second_tokens)):
            if limit < 0:
                raise InvalidRequest(f"{name} must be a non-negative integer", param=name)
            if limit and limit >= model.max_model_len:
                raise InvalidRequest(
                    f"{name} ({limit}) must be less than max_model_len ({model.max_model_len}).", param=name
                )
        return ScoredTexts(
            await _cut(model.tokenizer, self.first, first_tokens),
            await _cut(model.tokenizer, self.second, second_tokens),
        )

    def inputs(self, model: ServedModel, template_kwargs: Mapping[str, Any] | None = None) -> Sequence[Input]:
        """Return what is pooled: each text, or the pairs. Raises NotFound if the model scores none.

        A template renders pairs only if the operator gave it, as in vLLM, since those of rerankers' files are often of
        the model that they were made from; and if it names the roles of both texts: else it is for chats, with other
        models of the fleet.
        """
        pooling = model.pooling
        if pooling is None or pooling.score not in ("bi-encoder", "cross-encoder") or pooling.own_pairs:
            raise lacks_route(model, "Score API")
        if pooling.score == "bi-encoder":
            return [TextPrompt(text) for text in (*self.first, *self.second)]
        firsts = self.first if len(self.first) > 1 else [self.first[0]] * len(self.second)
        pairs = zip(firsts, self.second, strict=True)
        if model.template.renders_pairs:
            kwargs = {**(template_kwargs or {})}
            options = TemplateOptions(bool(kwargs.pop("add_generation_prompt", False)), kwargs=kwargs)
            return [ChatPrompt(_as_messages(*pair), options) for pair in pairs]
        if not pooling.separates_texts:
            return [TextPrompt(first + second) for first, second in pairs]
        return [TextPair(first, second) for first, second in pairs]


def _as_messages(first: str, second: str) -> Sequence[Mapping[str, Any]]:
    return [{"role": "query", "content": first}, {"role": "document", "content": second}]


async def pair_scores(results: Results, first: int, second: int) -> list[float]:
    """Return the score of each pair from the results of so many first and second texts."""
    if len(results.pooled) == second:  # of a cross encoder: a bi-encoder has those of the first texts too
        return [results.vector(index)[0] for index in range(second)]
    vectors: list[Sequence[float]] = []
    lengths: list[float] = []
    for index in range(len(results.pooled)):
        vectors.append(results.vector(index))
        lengths.append(max(math.sqrt(_product(vectors[-1], vectors[-1])), _LEAST_NORM))
        await _yield_to_others(index)
    scores: list[float] = []
    for index in range(second):
        a, b = index if first > 1 else 0, first + index
        scores.append(_product(vectors[a], vectors[b]) / (lengths[a] * lengths[b]))
        await _yield_to_others(index)
    return scores


async def _cut(tokenizer: ModelTokenizer, texts: Sequence[str], tokens: int) -> Sequence[str]:
    """Return texts with at most so many tokens each; 0: any number."""
    if not tokens:
        return texts
    cut = partial(cut_text, tokenizer, tokens=tokens)
    if sum(map(len, texts)) <= INLINE_CHARS:
        return [*map(cut, texts)]
    return await in_thread(lambda: [*map(cut, texts)])


def _product(one: Sequence[float], other: Sequence[float]) -> float:
    product: float = sum(map(mul, one, other))
    return product


async def _yield_to_others(index: int) -> None:
    if index % _VECTORS_BETWEEN_YIELDS == _VECTORS_BETWEEN_YIELDS - 1:
        await asyncio.sleep(0)


def ranked(scores: Sequence[float], most: int) -> list[int]:
    """Return the positions of the highest scores, the highest first; 0: of all."""
    order = sorted(range(len(scores)), key=lambda index: scores[index], reverse=True)
    return order[:most] if most else order
