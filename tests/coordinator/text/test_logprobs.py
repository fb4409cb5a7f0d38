"""Texts of log-probabilities: each token's own, and those of multi-token characters."""

from typing import Literal

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from tests.coordinator.history.models import small_model
from tokenwire.coordinator.text.logprobs import LogprobDecoder, ScoredPosition, ScoredToken, TokenTexts
from tokenwire.coordinator.text.tokenizer import ModelTokenizer
from tokenwire.errors import ProtocolError
from tokenwire.v1 import inference_pb2 as pb


@pytest.fixture
def tokenizer() -> ModelTokenizer:
    """Return a tokenizer with one token per byte."""
    return small_model().tokenizer


def scored_rows(*positions: list[int], ranks: list[int] | None = None) -> pb.LogprobRows:
    """Return rows of tokens with log-probabilities that count down from -1."""
    flat = [token_id for position in positions for token_id in position]
    logprobs = [-float(1 + i) for i in range(len(flat))]
    return pb.LogprobRows(width=len(positions[0]), token_ids=flat, logprobs=logprobs, sampled_ranks=ranks or [])


def decoded_texts(decoder: LogprobDecoder, *positions: list[int]) -> list[list[str]]:
    """Decode rows; return the texts of each."""
    return [[token.text for token in position] for position in decoder.decode(scored_rows(*positions))]


def one_id_per_byte(tokenizer: ModelTokenizer, text: str) -> list[int]:
    """Return the ids of a text, one for each byte."""
    found = tokenizer.encode(text, add_special_tokens=False)
    assert len(found) == len(text.encode())
    return found


def test_a_position_is_its_token_and_then_the_likeliest(tokenizer: ModelTokenizer) -> None:
    """The token has its own rank, the others theirs in order; no token appears twice."""
    a, b, c = one_id_per_byte(tokenizer, "abc")

    first, second = LogprobDecoder(TokenTexts(tokenizer)).decode(scored_rows([a, b, c], [b, b, a], ranks=[7, 1]))

    assert [tuple(token) for token in first] == [(a, "a", -1.0, 7), (b, "b", -2.0, 1), (c, "c", -3.0, 2)]
    assert [(token.token_id, token.text, token.rank) for token in second] == [(b, "b", 1), (a, "a", 2)]


def test_a_position_is_a_sequence_of_tokens() -> None:
    """By place and in slices, whatever it is made of."""
    tokens = [ScoredToken(5, "x", -2.0, 3), ScoredToken(6, "y", -0.5, 1), ScoredToken(7, "z", -1.0, 2)]
    position = ScoredPosition.of(*tokens)

    assert (len(position), [*position]) == (3, tokens)
    assert (position[0], position[-1], position[:2], position[5:]) == (tokens[0], tokens[2], tokens[:2], [])
    assert position.texts == ("x", "y", "z")


def test_rows_without_ranks_have_none(tokenizer: ModelTokenizer) -> None:
    """A scored prompt may have no ranks of its own tokens; no rows are no positions."""
    decoder = LogprobDecoder(TokenTexts(tokenizer))

    assert [position[0].rank for position in decoder.decode(scored_rows([1], [2]))] == [0, 0]
    assert decoder.decode(pb.LogprobRows()) == []


@pytest.mark.parametrize("character", ["é", "東", "👩"])
@pytest.mark.parametrize("frames", [1, 2, 8])
def test_the_last_token_of_a_character_has_its_text(tokenizer: ModelTokenizer, character: str, frames: int) -> None:
    """Those before it have none, whichever frames they are in."""
    decoder, sequence = (
        LogprobDecoder(TokenTexts(tokenizer)),
        one_id_per_byte(tokenizer, f"ab{character}c{character}{character}"),
    )
    size = -(-len(sequence) // frames)
    shown = []
    for start in range(0, len(sequence), size):
        shown += decoded_texts(decoder, *([token_id] for token_id in sequence[start : start + size]))

    parts = [""] * (len(character.encode()) - 1) + [character]
    assert [text for (text,) in shown] == ["a", "b", *parts, "c", *parts, *parts]


def test_alternatives_follow_the_same_text(tokenizer: ModelTokenizer) -> None:
    """An alternative completes the sequence's incomplete character, not one of its own row."""
    first, second = one_id_per_byte(tokenizer, "é")
    other = one_id_per_byte(tokenizer, "è")[1]

    shown = decoded_texts(LogprobDecoder(TokenTexts(tokenizer)), [first, second, other], [second, other, first])

    assert shown == [["", "", ""], ["é", "è", ""]]


def test_sequences_are_independent(tokenizer: ModelTokenizer) -> None:
    """They share the texts of tokens, but no context."""
    shared = TokenTexts(tokenizer)
    first, second = one_id_per_byte(tokenizer, "é")
    one, other = LogprobDecoder(shared), LogprobDecoder(shared)

    assert decoded_texts(one, [first]) == [[""]]
    assert decoded_texts(other, [second]) == [[""]]
    assert decoded_texts(one, [second]) == [["é"]]


def test_a_character_of_four_bytes_is_decoded_after_any_text(tokenizer: ModelTokenizer) -> None:
    """The context is long enough, even after an incomplete character."""
    broken = one_id_per_byte(tokenizer, "東")[:2]
    decoder = LogprobDecoder(TokenTexts(tokenizer))

    shown = decoded_texts(decoder, *([token_id] for token_id in [*broken, *one_id_per_byte(tokenizer, "👩")]))

    assert shown[-1] == ["👩"]


def test_text_before_an_incomplete_character_belongs_to_its_last_token(tokenizer: ModelTokenizer) -> None:
    """A token of a blank and a character's beginning has no text: the one that completes it has both."""
    first, second, third = tokenizer.encode("東", add_special_tokens=False)
    backend = Tokenizer.from_str(tokenizer.backend.to_str())
    blank = "".join(backend.id_to_token(token_id) or "" for token_id in tokenizer.encode(" ", add_special_tokens=False))
    backend.add_tokens([blank + (backend.id_to_token(first) or "")])
    merged = backend.get_vocab_size() - 1

    shown = decoded_texts(LogprobDecoder(TokenTexts(ModelTokenizer(backend, {}))), [merged], [second], [third])

    assert shown == [[""], [""], [" 東"]]


def test_blanks_of_other_tokenizers_are_unchanged(tokenizer: ModelTokenizer) -> None:
    """Some have added tokens of line breaks, like Gemma."""
    backend = Tokenizer.from_str(tokenizer.backend.to_str())
    backend.add_tokens(["\n\n"])

    shown = decoded_texts(LogprobDecoder(TokenTexts(ModelTokenizer(backend, {}))), [backend.get_vocab_size() - 1])

    assert shown == [["\n\n"]]


def test_special_tokens_are_text(tokenizer: ModelTokenizer) -> None:
    """Their text is included, and they separate the text before and after them."""
    first, second = one_id_per_byte(tokenizer, "é")
    (end,) = tokenizer.encode("<|im_end|>", add_special_tokens=False)

    shown = decoded_texts(LogprobDecoder(TokenTexts(tokenizer)), [first], [end], [second])

    assert shown == [[""], ["<|im_end|>"], [""]]


@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("prepends", ["always", "never"])
def test_blanks_that_a_decoder_drops_are_restored(sequence: bool, prepends: Literal["always", "never"]) -> None:
    """If a character in the vocabulary stands for blanks, each token has its own at any position."""
    words = ["_", "_Hi", "__x", "Hi", "<unk>"]
    backend = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, [], unk_token="<unk>"))
    part = pre_tokenizers.Metaspace(replacement="_", prepend_scheme=prepends)
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(), part]) if sequence else part
    backend.decoder = decoders.Metaspace(replacement="_", prepend_scheme=prepends)
    decoder = LogprobDecoder(TokenTexts(ModelTokenizer(backend, {})))

    shown = decoded_texts(decoder, *([i] for i in (0, 1, 2, 3, 999)))

    assert [text for (text,) in shown] == [" ", " Hi", "  x", "Hi", ""], "the last one is no token"


def test_a_tokenizer_without_pre_tokenizer_has_texts_too() -> None:
    """Its tokens are what its vocabulary has."""
    tokenizer = ModelTokenizer(Tokenizer(models.BPE({"a": 0, "b": 1}, [])), {})

    assert decoded_texts(LogprobDecoder(TokenTexts(tokenizer)), [0], [1]) == [["a"], ["b"]]


def test_rows_are_no_wider_than_was_asked_for(tokenizer: ModelTokenizer) -> None:
    """A worker's million log-probabilities of one token are not decoded."""
    decoder = LogprobDecoder(TokenTexts(tokenizer), most_width=2)

    assert len(decoder.decode(scored_rows([1, 2]))) == 1
    with pytest.raises(ProtocolError, match="3 log-probabilities"):
        decoder.decode(scored_rows([1, 2, 3]))
