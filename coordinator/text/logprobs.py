"""Log-probabilities with the texts of their tokens, as vLLM decodes them."""

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tokenwire.coordinator.text.tokenizer import Tokenizer
from tokenwire.v1 import inference_pb2 as pb

_BROKEN = "\ufffd"
# A character has at most four bytes: so many tokens before the last of them can be parts of it.
_CONTEXT = 3


class ScoredToken(NamedTuple):
    """A token with its log-probability at one position. A tuple, since scoring a prompt makes very many."""

    token_id: int
    text: str
    """Decoded; empty while it is a part of a character that later tokens complete."""
    logprob: float
    rank: int
    """Place in the vocabulary at this position; 1 is the likeliest."""


ScoredPosition = Sequence[ScoredToken]
"""The token that stands at a position, then others by rank. No token twice."""


class TokenTexts:
    """Gives single tokens their texts. One per tokenizer: it remembers what it decoded."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._space = _space_marker(tokenizer)
        self._known: dict[int, str] = {}
        self.whole: dict[int, str] = {}
        """Those that were asked for and are whole characters, whatever comes before."""

    def text(self, token_id: int) -> str:
        """Return a token's text by itself; it ends in U+FFFD where the token is a part of a character."""
        text = self._known.get(token_id)
        if text is None:
            text = self._known[token_id] = self._decode(token_id)
            if not text.endswith(_BROKEN):
                self.whole[token_id] = text
        return text

    def text_after(self, token_id: int, before: Sequence[int]) -> str:
        """Return a token's text behind the last tokens of its sequence: "" while its character is incomplete."""
        text = self.text(token_id)
        return text if not text.endswith(_BROKEN) else self._completed(token_id, before)

    def _decode(self, token_id: int) -> str:
        text = self._tokenizer.decode([token_id], skip_special_tokens=False)
        if self._space is None:
            return text
        # Decoders of this kind take a leading blank for the one that the tokenizer put in front.
        piece = self._tokenizer.token_to_str(token_id) or ""
        blanks = len(piece) - len(piece.lstrip(self._space))
        return " " * (blanks - (len(text) - len(text.lstrip(" ")))) + text

    def _completed(self, token_id: int, before: Sequence[int]) -> str:
        for count in range(1, len(before) + 1):
            text = self._tokenizer.decode([*before[-count:], token_id], skip_special_tokens=False)
            if not text.endswith(_BROKEN):
                # With no token to spare: each holds a part of the character, so none had a text of its own.
                return text
        return ""


def _space_marker(tokenizer: Tokenizer) -> str | None:
    """Return the sign that stands for a blank in the vocabulary, where decoding one token may lose it."""
    if tokenizer.backend.pre_tokenizer is None:
        return None
    pre_tokenizer = json.loads(tokenizer.backend.pre_tokenizer.__getstate__())
    for part in [pre_tokenizer, *pre_tokenizer.get("pretokenizers", [])]:
        if part.get("type") == "Metaspace":
            return str(part.get("replacement", "\u2581"))
    return None


class LogprobDecoder:
    """Follows one sequence, or one prompt, and decodes the rows of its positions."""

    __slots__ = ("_before", "_texts")

    def __init__(self, texts: TokenTexts) -> None:
        self._texts = texts
        self._before: list[int] = []

    def decode(self, rows: pb.LogprobRows) -> list[ScoredPosition]:
        """Decode a frame's rows, in the order of the sequence."""
        width = rows.width
        if not width:
            return []
        token_ids, logprobs = list(rows.token_ids), list(rows.logprobs)
        ranks: Iterable[int] = rows.sampled_ranks or [0] * (len(token_ids) // width)
        positions = []
        for start, rank in zip(range(0, len(token_ids), width), ranks, strict=True):
            end = start + width
            positions.append(self._position(token_ids[start:end], logprobs[start:end], rank))
            self._before = [*self._before[1 - _CONTEXT :], token_ids[start]]
        return positions

    def _position(self, token_ids: list[int], logprobs: list[float], rank: int) -> ScoredPosition:
        known, before = self._texts.whole.get, self._before
        texts = [
            self._texts.text_after(token_id, before) if (text := known(token_id)) is None else text
            for token_id in token_ids
        ]
        tokens = map(ScoredToken, token_ids, texts, logprobs, (rank, *range(1, len(token_ids))))
        # The token itself stands first, and again among the likeliest if it is one of them.
        return list(dict(zip(token_ids, tokens, strict=True)).values())
