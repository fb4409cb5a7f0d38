"""Tests of encoding word by word: ids are those that the library finds for whole texts."""

import asyncio
import random
import re
from collections.abc import Sequence

import pytest
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from tests.coordinator.text.tiny import bytes_backend
from tokenwire.coordinator.text import word_ids
from tokenwire.coordinator.text.tokenizer import ModelTokenizer
from tokenwire.coordinator.text.word_ids import WordIds, word_ids_of
from tokenwire.errors import InvalidRequest
from tokenwire.worker.vllm_engine.embedded_model import find_embedding_model

_PIECES = (
    *(
        "retrieval",
        "naïve",
        "e\u0301",
        "\u0301",
        "İ",
        "ΣΑΣ",
        "東京",
        "ー",
        "한국어",
        "\u1161",
        "हि",
        "ﬁ",
        "👩\u200d👧",
        "½",
        "ªº",
    ),
    *("[MASK]", "[SEP]x", "[unused1]", "don't", "'S", "1", "12", "12345", "_", "--", "<", "<|", "{", "/", "The", "a"),
)
_GAPS = (" ", " ", " ", "  ", "   ", "\t", "\n", "\r\n", " \n", "\n    ", "\u00a0", "\u3000", "\u200b")
_OTHER_GAPS = ("-", "", "\x00", "\x1c", "\x85", "\u2028", "\ufffd", "\ufeff", "\u0345")


@pytest.fixture(scope="module")
def bert() -> ModelTokenizer:
    """Return the embedding model's tokenizer."""
    return ModelTokenizer.from_directory(find_embedding_model())


@pytest.fixture(params=["bert", "smollm2"])
def tokenizer(request: pytest.FixtureRequest) -> ModelTokenizer:
    """Return a tokenizer with words, of each kind."""
    found: ModelTokenizer = request.getfixturevalue(request.param)
    return found


def drawn_text(source: random.Random, added: Sequence[str] = ()) -> str:
    """Return words, added tokens and any characters, with all that may stand between."""

    def character() -> str:
        number = source.choice((source.randrange(0x300), source.randrange(0xD800), source.randrange(0xE000, 0x110000)))
        return chr(number) * source.randrange(1, 4)

    parts = []
    for _ in range(source.randrange(12)):
        kind = source.random()
        parts += [source.choice(_PIECES) if kind < 0.6 or not added else source.choice(added)]
        parts += [character()] * (kind > 0.8)
        parts += [source.choice(_GAPS if source.random() < 0.8 else _OTHER_GAPS)]
    return "".join(parts)


def check_words(tokenizer: ModelTokenizer, special: bool, rounds: int) -> None:
    """Check that drawn texts have the ids that the library finds."""
    words, added = word_ids_of(tokenizer.backend), [*tokenizer.added_token_ids.values()]
    assert words is not None
    source = random.Random(3)
    for _ in range(rounds):
        texts = [drawn_text(source, added) for _ in range(20)]
        wanted = [each.ids for each in tokenizer.backend.encode_batch_fast(texts, add_special_tokens=special)]
        assert [each.tolist() for each in words.encode(words.split(texts), special)] == wanted


@pytest.mark.parametrize("special", [True, False])
def test_ids_are_those_of_whole_texts(tokenizer: ModelTokenizer, special: bool) -> None:
    """Of any characters, added tokens among them, in any order and more than once."""
    check_words(tokenizer, special, 200)


@pytest.mark.npm
def test_ids_of_real_tokenizers_are_those_of_whole_texts(npm_tokenizer: ModelTokenizer) -> None:
    """Of all that have words: one that merges over spaces has none."""
    if "<start_of_turn>" in npm_tokenizer.added_token_ids.values():
        assert word_ids_of(npm_tokenizer.backend) is None
    else:
        check_words(npm_tokenizer, False, 300)


@pytest.mark.parametrize("chars", [2_000, 20_000, 60_000, 90_000])
async def test_long_texts_have_the_ids_of_the_library(tokenizer: ModelTokenizer, chars: int) -> None:
    """Whether their words are new or known, and by themselves or with others."""
    source = random.Random(5)
    for _ in range(2):
        text = "".join(drawn_text(source) for _ in range(chars // 20))
        (wanted,) = [each.ids for each in tokenizer.backend.encode_batch_fast([text], add_special_tokens=False)]
        for _ in range(2):
            assert [*await tokenizer.encode_async(text, False)] == wanted
            first, _ = await tokenizer.encode_many_async([text, "a b"], False)
            assert [*first] == wanted


def test_words_are_looked_up_once(bert: ModelTokenizer) -> None:
    """A text whose words are known needs no library."""
    words = WordIds(bert.backend, str.split, [101], [102])
    found = words.split(["seldom seen seldom", "and unseen"])
    assert words.unknown(found) == {"seldom", "seen", "and", "unseen"}
    assert words.look_up(found, True) is None
    ids = words.encode(found, True)
    assert words.unknown(found) == set()
    assert words.look_up(found[:1], True) == ids[:1]


def test_older_words_are_dropped_and_long_ones_not_kept(bert: ModelTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once they are too many, or too long together."""
    words = WordIds(bert.backend, str.split, [], [])
    first, second, long = (words.split([text]) for text in ("a b c d", "e f g h", f"{'x' * 300} y"))
    monkeypatch.setattr(word_ids, "_MOST_WORDS", 6)
    words.encode(first, False)
    words.encode(second, False)
    assert words.unknown(first) == {"a", "b", "c", "d"}
    assert words.unknown(second) == set()
    words.encode(long, False)
    assert words.unknown(long) == {"x" * 300}
    monkeypatch.setattr(word_ids, "_MOST_CHARS", 4)
    words.encode(first, False)
    assert words.unknown(second) == {"e", "f", "g", "h"}


async def test_texts_of_mostly_new_words_are_encoded_as_wholes(smollm2: ModelTokenizer) -> None:
    """Few of their words are kept, and more with each text."""
    words = word_ids_of(smollm2.backend)
    assert words is not None
    text = " ".join(f"x{number}y" for number in range(2000))
    split, known = words.split([text]), []
    for _ in range(3):
        (ids,) = words.encode(split, False)
        assert ids.tolist() == smollm2.backend.encode(text, add_special_tokens=False).ids
        known.append(2000 - len(words.unknown(split)))
    assert 0 < known[0] < known[1] < known[2] < 1000


@pytest.mark.parametrize("text", ["a", "☃"])
def test_tokenizers_that_fail_on_texts_have_no_words(text: str) -> None:
    """And are loaded all the same: their texts fail one by one."""
    vocabulary = {char: index for index, char in enumerate(set(ByteLevel.alphabet()) - {*"abâ"} | {text})}
    backend = bytes_backend(ByteLevel(add_prefix_space=False))
    backend.model = BPE(vocabulary, [], unk_token="<unk>")
    assert word_ids_of(backend) is None


@pytest.mark.parametrize("without", ["", "e", "\u0120", "\u010a"], ids=["nothing", "e", "spaces", "line breaks"])
def test_a_vocabulary_may_lack_bytes(without: str) -> None:
    """What it lacks has no ids, and nothing takes its place."""
    backend = bytes_backend(ByteLevel(add_prefix_space=False), without=without)
    words = WordIds(backend, re.compile(" ?[^ ]+").findall, [], [])
    text = "The fee, the tree\n is\n e e free  of bees\n"
    (ids,) = words.encode([re.findall(" ?[^ ]+| (?= )", text)], False)
    assert ids.tolist() == backend.encode(text).ids


async def test_words_that_are_dropped_meanwhile_are_found_again(
    bert: ModelTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many words other requests bring while those of one are looked up."""
    monkeypatch.setattr(word_ids, "_MOST_WORDS", 50)
    source = random.Random(4)
    texts = [[f"{source.randrange(10**6)} of {source.randrange(40)}" for _ in range(300)] for _ in range(8)]
    found = await asyncio.gather(*(bert.encode_many_async(each) for each in texts))
    for each, ids in zip(texts, found, strict=True):
        assert [[*one] for one in ids] == [encoding.ids for encoding in bert.backend.encode_batch_fast(each)]


async def test_a_text_without_an_encoding_is_refused(bert: ModelTokenizer) -> None:
    """As by the library."""
    with pytest.raises(InvalidRequest, match="unpaired surrogate"):
        await bert.encode_many_async(["a \ud800 b"])
