"""Pairs of texts for cross encoders."""

import json
import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from tokenizers import Tokenizer, pre_tokenizers, processors
from tokenizers.models import WordLevel

from tests.coordinator.fakes import WORDS
from tests.coordinator.pooling.embedding import embedding_model
from tokenwire.coordinator.pooling.pairs import cut_text, encode_pairs, longest_first
from tokenwire.coordinator.pooling.types import TextPair
from tokenwire.coordinator.text.tokenizer import ModelTokenizer
from tokenwire.coordinator.types import ServedModel, Truncation
from tokenwire.errors import InvalidRequest


def bert_backend() -> Tokenizer:
    """Return a tokenizer of digits that frames pairs as BERT does."""
    backend = Tokenizer(WordLevel({word: index for index, word in enumerate([*WORDS, "C", "S"])}, unk_token="zero"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.TemplateProcessing("C $A S", "C $A S $B:1 S:1", [("C", 10), ("S", 11)])
    return backend


def bert_model() -> ServedModel:
    """Return a model with that tokenizer."""
    tokenizer = ModelTokenizer.from_files({"tokenizer.json": json.dumps(json.loads(bert_backend().to_str())).encode()})
    return replace(embedding_model(token_types=True), tokenizer=tokenizer)


async def test_pairs_have_types() -> None:
    """The position at which those of the second text begin."""
    pairs = [TextPair("one two", "three"), TextPair("", "one"), TextPair("one", "")]

    assert await encode_pairs(pairs, bert_model(), None, None) == [
        ([10, 1, 2, 11, 3, 11], 4),
        ([10, 11, 1, 11], 2),
        ([10, 1, 11], 3),
    ]


async def test_many_pairs_are_tokenized_in_batches() -> None:
    """In their order."""
    pairs = [TextPair("one " * 500, "two"), TextPair("three", "four")] * 300

    encoded = await encode_pairs(pairs, bert_model(), None, None)

    assert [len(ids) for ids, _ in encoded] == [504, 5] * 300


@pytest.mark.parametrize("side", ["left", "right"])
async def test_pairs_are_truncated_as_by_the_library(side: Literal["left", "right"]) -> None:
    """The longer text first, then both; drawn lengths, against a tokenizer that truncates by itself.

    With less room than special tokens it truncates nothing, and vLLM cuts what comes.
    """
    source, model = random.Random(7), bert_model()
    for _ in range(300):
        first, second = (" ".join(source.choices(WORDS, k=source.randrange(9))) for _ in range(2))
        keep = source.randrange(1, 16)
        reference = bert_backend()
        reference.enable_truncation(keep, direction=side)
        truncation = Truncation(keep, None, side)

        ((ids, begins),) = await encode_pairs([TextPair(first, second)], model, truncation, keep)

        expected = reference.encode(first, second) if second else reference.encode(first)
        part = slice(0, keep) if side == "right" else slice(-keep, None)
        types = expected.type_ids[part]
        assert (ids, begins) == (expected.ids[part], types.index(1) if 1 in types else len(types)), (
            first,
            second,
            keep,
        )


async def test_a_named_side_is_cut_off_the_whole() -> None:
    """With special tokens, and the types of what is left."""
    pair = TextPair("one two", "three four")
    cuts = []
    for side in ("left", "right"):
        cuts += await encode_pairs([pair], bert_model(), Truncation(3, side), 3)

    assert cuts == [([3, 4, 11], 0), ([10, 1, 2], 3)]
    assert await encode_pairs([pair], bert_model(), Truncation(0), 0) == [([], 0)]


async def test_only_documents_are_cut_where_they_have_a_limit() -> None:
    """A query that leaves no room for one is an error."""
    pair = TextPair("one two", "three four five")

    ((ids, _),) = await encode_pairs([pair], bert_model(), Truncation(6, None, "right"), 6, cuts_second=True)

    assert ids == [10, 1, 2, 11, 3, 11]
    with pytest.raises(InvalidRequest, match="no room"):
        await encode_pairs([pair], bert_model(), Truncation(5, None, "right"), 5, cuts_second=True)


def test_room_is_shared_by_both_texts() -> None:
    """If neither would fit into half of it."""
    assert [longest_first(*each) for each in ((3, 9, 7), (9, 3, 7), (9, 9, 7), (1, 2, 7), (9, 2, 7))] == [
        (3, 4),
        (4, 3),
        (3, 4),
        (1, 2),
        (5, 2),
    ]


def test_texts_are_cut_between_tokens() -> None:
    """So that the beginning has as many as there may be."""
    tokenizer = bert_model().tokenizer

    assert [cut_text(tokenizer, "one two  three", count) for count in (1, 2, 3, 4)] == [
        "one",
        "one two",
        "one two  three",
        "one two  three",
    ]


def test_no_more_of_a_long_text_is_encoded_than_shows_where_to_cut() -> None:
    """Encodings take a hundred bytes for each token. One that has no words for long is encoded further."""
    encoded: list[int] = []

    class Backend:
        def encode_batch(self, texts: list[str], add_special_tokens: bool) -> Any:
            encoded.append(max(map(len, texts)))
            return bert_backend().encode_batch(texts, add_special_tokens=add_special_tokens)

    tokenizer: Any = SimpleNamespace(backend=Backend())
    assert cut_text(tokenizer, "one " * 10**6, 2) == "one one"
    assert max(encoded) == 2**16
    assert cut_text(tokenizer, " " * 10**5 + "one " * 100, 2).split() == ["one", "one"]
