"""Tests of encoding word by word: ids are those that the library finds for whole texts."""

import asyncio
import random

import pytest
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from tests.coordinator.text.tiny import BACKEND
from tokenwire.coordinator.text import word_ids
from tokenwire.coordinator.text.tokenizer import ModelTokenizer
from tokenwire.coordinator.text.word_ids import WordIds, word_ids_of
from tokenwire.errors import InvalidRequest
from tokenwire.worker.vllm_engine.embedded_model import find_embedding_model

_PIECES = (
    "retrieval",
    "naïve",
    "e\u0301",
    "\u0301",
    "İ",
    "ΣΑΣ",
    "東京",
    "한국어",
    "ﬁ",
    "[MASK]",
    "[SEP]x",
    "[unused1]",
    "don't",
)
_GAPS = (" ", " ", " ", "  ", "\t", "\n", "\u00a0", "\u3000", "\u200b", "-", "", "\x00", "\ufffd", "\u0345")


@pytest.fixture(scope="module")
def bert() -> ModelTokenizer:
    """Return the embedding model's tokenizer."""
    return ModelTokenizer.from_directory(find_embedding_model())


def drawn_text(source: random.Random) -> str:
    """Return words, special tokens and any characters, with all that may stand between."""

    def character() -> str:
        number = source.choice((source.randrange(0x300), source.randrange(0xD800), source.randrange(0xE000, 0x110000)))
        return chr(number)

    parts = []
    for _ in range(source.randrange(12)):
        parts += [source.choice(_PIECES) if source.random() < 0.6 else character() * source.randrange(1, 4)]
        parts += [source.choice(_GAPS)]
    return "".join(parts)


@pytest.mark.parametrize("special", [True, False])
async def test_ids_are_those_of_whole_texts(bert: ModelTokenizer, special: bool) -> None:
    """Of any characters, special tokens among them, in any order and more than once."""
    source = random.Random(3)
    for _ in range(200):
        texts = [drawn_text(source) for _ in range(20)]
        wanted = [each.ids for each in bert.backend.encode_batch_fast(texts, add_special_tokens=special)]
        assert await bert.encode_many_async(texts, special) == wanted


def test_words_are_looked_up_once(bert: ModelTokenizer) -> None:
    """A text whose words are known needs no library; long words are found anew."""
    words = WordIds(bert.backend, [101], [102])
    assert set(words.unknown(["seldom seen seldom", "and unseen"])) == {"seldom", "seen", "and", "unseen"}
    long = "x" * 40
    words.encode([f"seen {long}"], True, words.find(["seen", long]))
    assert words.unknown([f"seen {long} seen"]) == [long]


async def test_words_that_are_dropped_meanwhile_are_found_again(
    bert: ModelTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many words other requests bring while those of one are looked up."""
    monkeypatch.setattr(word_ids, "_MOST_WORDS", 50)
    source = random.Random(4)
    texts = [[f"{source.randrange(10**6)} of {source.randrange(40)}" for _ in range(300)] for _ in range(8)]
    found = await asyncio.gather(*(bert.encode_many_async(each) for each in texts))
    for each, ids in zip(texts, found, strict=True):
        assert ids == [encoding.ids for encoding in bert.backend.encode_batch_fast(each)]


async def test_a_text_without_an_encoding_is_refused(bert: ModelTokenizer) -> None:
    """As by the library."""
    with pytest.raises(InvalidRequest, match="unpaired surrogate"):
        await bert.encode_many_async(["a \ud800 b"])


def test_other_tokenizers_encode_whole_texts() -> None:
    """Those of other models, and one that has a token with a space."""
    assert word_ids_of(Tokenizer.from_str(BACKEND)) is None
    backend = Tokenizer(WordPiece({"[UNK]": 0, "a": 1, "b": 2}, unk_token="[UNK]"))
    backend.normalizer, backend.pre_tokenizer = BertNormalizer(), BertPreTokenizer()
    assert word_ids_of(backend) is not None
    backend.add_tokens([AddedToken("a b")])
    assert word_ids_of(backend) is None
