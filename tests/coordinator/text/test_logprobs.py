"""Log-probabilities with texts: each token's own, and that of characters that several tokens make."""

import pytest

from coordinator.text.logprobs import LogprobDecoder, TokenTexts
from coordinator.text.tokenizer import Tokenizer
from tests.coordinator.history.models import small_model
from tokenwire.v1 import inference_pb2 as pb


@pytest.fixture
def tokenizer() -> Tokenizer:
    """Return a tokenizer with a token for each byte."""
    return small_model().tokenizer


def rows(*positions: list[int], ranks: list[int] | None = None) -> pb.LogprobRows:
    """Return rows of tokens, whose log-probabilities count down from -1."""
    flat = [token_id for position in positions for token_id in position]
    logprobs = [-float(1 + i) for i in range(len(flat))]
    return pb.LogprobRows(width=len(positions[0]), token_ids=flat, logprobs=logprobs, sampled_ranks=ranks or [])


def texts(decoder: LogprobDecoder, *positions: list[int]) -> list[list[str]]:
    """Decode rows; return the texts of each."""
    return [[token.text for token in position] for position in decoder.decode(rows(*positions))]


def ids(tokenizer: Tokenizer, text: str) -> list[int]:
    """Return the ids of a text, one for each byte."""
    found = tokenizer.encode(text, add_special_tokens=False)
    assert len(found) == len(text.encode())
    return found


def test_a_position_is_its_token_and_then_the_likeliest(tokenizer: Tokenizer) -> None:
    """The token has the rank that it came with, the others theirs in order; a token is there once."""
    a, b, c = ids(tokenizer, "abc")

    first, second = LogprobDecoder(TokenTexts(tokenizer)).decode(rows([a, b, c], [b, b, a], ranks=[7, 1]))

    assert [tuple(token) for token in first] == [(a, "a", -1.0, 7), (b, "b", -2.0, 1), (c, "c", -3.0, 2)]
    assert [(token.token_id, token.text, token.rank) for token in second] == [(b, "b", 1), (a, "a", 2)]


def test_rows_without_ranks_have_none(tokenizer: Tokenizer) -> None:
    """A scored prompt need not say how likely its own tokens are; no rows are no positions."""
    decoder = LogprobDecoder(TokenTexts(tokenizer))

    assert [position[0].rank for position in decoder.decode(rows([1], [2]))] == [0, 0]
    assert decoder.decode(pb.LogprobRows()) == []


@pytest.mark.parametrize("character", ["é", "東", "👩"])
@pytest.mark.parametrize("frames", [1, 2, 8])
def test_the_last_token_of_a_character_has_its_text(tokenizer: Tokenizer, character: str, frames: int) -> None:
    """Those before have none, whichever frames they come in."""
    decoder, sequence = LogprobDecoder(TokenTexts(tokenizer)), ids(tokenizer, f"ab{character}c{character}{character}")
    size = -(-len(sequence) // frames)
    shown = []
    for start in range(0, len(sequence), size):
        shown += texts(decoder, *([token_id] for token_id in sequence[start : start + size]))

    parts = [""] * (len(character.encode()) - 1) + [character]
    assert [text for (text,) in shown] == ["a", "b", *parts, "c", *parts, *parts]


def test_what_else_was_likely_follows_the_same_text(tokenizer: Tokenizer) -> None:
    """An alternative completes the character that the sequence has begun, not one of its own row."""
    first, second = ids(tokenizer, "é")
    other = ids(tokenizer, "è")[1]

    shown = texts(LogprobDecoder(TokenTexts(tokenizer)), [first, second, other], [second, other, first])

    assert shown == [["", "", ""], ["é", "è", ""]]


def test_sequences_do_not_see_each_other(tokenizer: Tokenizer) -> None:
    """They share the texts of tokens and nothing that came before."""
    shared = TokenTexts(tokenizer)
    first, second = ids(tokenizer, "é")
    one, other = LogprobDecoder(shared), LogprobDecoder(shared)

    assert texts(one, [first]) == [[""]]
    assert texts(other, [second]) == [[""]]
    assert texts(one, [second]) == [["é"]]


def test_a_character_of_four_bytes_is_seen_behind_anything(tokenizer: Tokenizer) -> None:
    """The context is long enough for it, behind a broken character too."""
    broken = ids(tokenizer, "東")[:2]
    decoder = LogprobDecoder(TokenTexts(tokenizer))

    shown = texts(decoder, *([token_id] for token_id in [*broken, *ids(tokenizer, "👩")]))

    assert shown[-1] == ["👩"]
