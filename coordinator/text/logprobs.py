"""Decodes log-probability rows to tokens with texts, as vLLM does."""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple, overload

from tokenwire.coordinator.text.tokenizer import REPLACEMENT_CHARACTER, ModelTokenizer
from tokenwire.coordinator.text.word_rules import component_parts
from tokenwire.errors import ProtocolError
from tokenwire.v1 import inference_pb2 as pb

# A character has at most four bytes, so at most three earlier tokens can be parts of it.
_CONTEXT = 3


class ScoredToken(NamedTuple):
    """A token with its log-probability at one position. A tuple, because scoring a prompt creates very many."""

    token_id: int
    text: str
    """Decoded text; empty for a part of a character that later tokens complete."""
    logprob: float
    rank: int
    """Rank in the vocabulary at this position; 1 is the most likely."""


_scored_token: Callable[[tuple[Any, ...]], ScoredToken] = partial(tuple.__new__, ScoredToken)
"""Makes a token of its fields, without the call of a constructor in Python."""


class ScoredPosition(Sequence[ScoredToken]):
    """The token at a position, then others by rank, without duplicates.

    It has columns, and makes tokens only for those who ask for them: a chat's stream takes texts and numbers alone.
    """

    __slots__ = ("logprobs", "ranks", "texts", "token_ids")

    def __init__(
        self, token_ids: Sequence[int], texts: Sequence[str], logprobs: Sequence[float], ranks: Sequence[int]
    ) -> None:
        self.token_ids = token_ids
        self.texts = texts
        self.logprobs = logprobs
        self.ranks = ranks

    @classmethod
    def of(cls, *tokens: ScoredToken) -> "ScoredPosition":
        """Return the position of these tokens, of which there is one or more."""
        return cls(*zip(*tokens, strict=True))

    def __len__(self) -> int:
        return len(self.token_ids)

    def __iter__(self) -> Iterator[ScoredToken]:
        return map(_scored_token, zip(self.token_ids, self.texts, self.logprobs, self.ranks, strict=True))

    @overload
    def __getitem__(self, index: int) -> ScoredToken: ...
    @overload
    def __getitem__(self, index: slice) -> list[ScoredToken]: ...
    def __getitem__(self, index: int | slice) -> ScoredToken | list[ScoredToken]:
        if isinstance(index, slice):
            return [*self][index]
        return ScoredToken(self.token_ids[index], self.texts[index], self.logprobs[index], self.ranks[index])


class TokenTexts:
    """Decodes single tokens, with a cache; one per tokenizer."""

    def __init__(self, tokenizer: ModelTokenizer) -> None:
        self._tokenizer = tokenizer
        self._space = _space_marker(tokenizer)
        self._known: dict[int, str] = {}
        self.whole: dict[int, str] = {}
        """Cached texts that do not depend on earlier tokens."""

    def text(self, token_id: int) -> str:
        """Return a token's text by itself; it ends in U+FFFD if the token is a part of a character."""
        text = self._known.get(token_id)
        if text is None:
            text = self._known[token_id] = self._decode(token_id)
            if not text.endswith(REPLACEMENT_CHARACTER):
                self.whole[token_id] = text
        return text

    def text_after(self, token_id: int, before: Sequence[int]) -> str:
        """Return a token's text after the last tokens of its sequence: "" while its character is incomplete."""
        text = self.text(token_id)
        return text if not text.endswith(REPLACEMENT_CHARACTER) else self._completed(token_id, before)

    def _decode(self, token_id: int) -> str:
        text = self._tokenizer.decode([token_id], skip_special_tokens=False)
        if self._space is None:
            return text
        # Decoders of this kind drop a leading space, assuming that the tokenizer prepended it.
        piece = self._tokenizer.token_to_str(token_id) or ""
        blanks = len(piece) - len(piece.lstrip(self._space))
        return " " * (blanks - (len(text) - len(text.lstrip(" ")))) + text

    def _completed(self, token_id: int, before: Sequence[int]) -> str:
        for count in range(1, len(before) + 1):
            text = self._tokenizer.decode([*before[-count:], token_id], skip_special_tokens=False)
            if not text.endswith(REPLACEMENT_CHARACTER):
                # The shortest run whose text is complete: its earlier tokens were parts of the character, without text.
                return text
        return ""


def _space_marker(tokenizer: ModelTokenizer) -> str | None:
    """Return the vocabulary's character for a space, if decoding a single token may lose it."""
    for part in component_parts(tokenizer.backend.pre_tokenizer, "pretokenizers"):
        if part.get("type") == "Metaspace":
            return str(part.get("replacement", "\u2581"))
    return None


class LogprobDecoder:
    """Decodes the rows of one sequence or prompt, in order."""

    __slots__ = ("_before", "_most_width", "_texts")

    def __init__(self, texts: TokenTexts, most_width: int | None = None) -> None:
        """`most_width`: the most log-probabilities of a token that were asked for, with its own; None: no limit."""
        self._texts = texts
        self._most_width = most_width
        self._before: list[int] = []

    def decode(self, rows: pb.LogprobRows) -> list[ScoredPosition]:
        """Decode a frame's rows. Raises ProtocolError if they are wider than was asked for."""
        width = rows.width
        if self._most_width is not None and width > self._most_width:
            raise ProtocolError(f"The worker sent {width} log-probabilities of a token, and not {self._most_width}.")
        if not width:
            return []
        token_ids, logprobs, ranks = rows.token_ids[:], rows.logprobs[:], rows.sampled_ranks[:]  # faster than list()
        if len(token_ids) == width and len(ranks) == 1:  # of one token, as nearly all
            return [self._position(token_ids, logprobs, ranks[0])]
        starts = range(0, len(token_ids), width)
        return [
            self._position(token_ids[start : start + width], logprobs[start : start + width], rank)
            for start, rank in zip(starts, ranks or [0] * len(starts), strict=True)
        ]

    def _position(self, row: list[int], scores: list[float], rank: int) -> ScoredPosition:
        token_id = row[0]
        # The token itself comes first, and again among the most likely if it is one of them.
        again = row.index(token_id, 1) if row.count(token_id) > 1 else 0
        ranks = _ranks(rank, len(row), again)
        if again:
            del row[again], scores[again]
        texts: list[Any] = [*map(self._texts.whole.get, row)]
        if None in texts:
            texts = [self._texts.text_after(each, self._before) for each in row]
        self._before = [*self._before[1 - _CONTEXT :], token_id]
        return ScoredPosition(row, texts, scores, ranks)


@lru_cache(1024)
def _ranks(own: int, width: int, again: int) -> Sequence[int]:
    """Return the ranks of a row without the place where its token comes again; 0: it does not."""
    return own, *[rank for rank in range(1, width) if rank != again]
