"""Decodes log-probability rows to tokens with texts, as vLLM does."""

import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from tokenwire.coordinator.text.tokenizer import REPLACEMENT_CHARACTER, ModelTokenizer
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

ScoredPosition = Sequence[ScoredToken]
"""The token at a position, then others by rank, without duplicates."""


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
    if tokenizer.backend.pre_tokenizer is None:
        return None
    pre_tokenizer = json.loads(tokenizer.backend.pre_tokenizer.__getstate__())
    for part in [pre_tokenizer, *pre_tokenizer.get("pretokenizers", [])]:
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
        token_ids, logprobs = rows.token_ids[:], rows.logprobs[:]  # twice as fast as list()
        ranks: Iterable[int] = rows.sampled_ranks or [0] * (len(token_ids) // width)
        known, others = self._texts.whole.get, range(1, width)
        positions: list[ScoredPosition] = []
        for start, rank in zip(range(0, len(token_ids), width), ranks, strict=True):
            end = start + width
            row, scores = token_ids[start:end], logprobs[start:end]
            texts: list[str | None] = [*map(known, row)]
            if None in texts:
                texts = [self._texts.text_after(token_id, self._before) for token_id in row]
            tokens = [*map(_scored_token, zip(row, texts, scores, (rank, *others), strict=True))]
            token_id = row[0]
            # The token itself comes first, and again among the most likely if it is one of them.
            if row.count(token_id) > 1:
                del tokens[row.index(token_id, 1)]
            positions.append(tokens)
            self._before = [*self._before[1 - _CONTEXT :], token_id]
        return positions
