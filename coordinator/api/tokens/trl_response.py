"""Responses of the routes of TRL's own server: ids and log-probabilities as lists, or as arrays in base64."""

import asyncio
import base64
import math
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Any

from tokenwire.coordinator.api.fields.logprobs import batches
from tokenwire.coordinator.api.json_pieces import JsonPieces, array_in_parts, array_of
from tokenwire.coordinator.text.logprobs import ScoredPosition, ScoredToken

_RANK = attrgetter("rank")
_ROWS_AT_ONCE = 1024
_VALUES_AT_ONCE = 8192
_ENCODED_AT_ONCE = 48 * 1024
"""Bytes, a multiple of three, so that base64 pads nothing in between."""


class SequenceScores:
    """The log-probabilities of a sequence by rank: eight bytes for each, where as tokens they take hundreds."""

    def __init__(self) -> None:
        self.logprobs, self.token_ids = array("f"), array("i")
        """Of all positions, one after the other."""
        self.ends = array("I", [0])
        """Where each position ends in these, after the beginning of the first one."""
        self.own = array("I")
        """Where the sequence's own token of each position is; at the end of a position without any."""

    def __len__(self) -> int:
        return len(self.own)

    def add(self, position: ScoredPosition | None) -> None:
        """Add the next position; None: one without log-probabilities."""
        ranked: Sequence[ScoredToken] = sorted(position or (), key=_RANK)
        start = self.ends[-1]
        self.own.append(start + (ranked.index(position[0]) if position else 0))
        self.logprobs.extend([token.logprob for token in ranked])
        self.token_ids.extend([token.token_id for token in ranked])
        self.ends.append(start + len(ranked))

    def lists(self, values: "array[Any]") -> JsonPieces:
        """Return a list of values for each position; null for what JSON cannot represent."""
        step = max(1, _VALUES_AT_ONCE * len(self) // max(1, len(values)))

        def rows() -> Iterator[list[list[Any]]]:
            for first in range(0, len(self), step):
                ends = self.ends[first : first + step + 1]
                yield [[*map(_shown, values[start:end])] for start, end in pairwise(ends)]

        return array_in_parts(rows())


def _shown(value: float) -> float | None:
    return value if math.isfinite(value) else None


async def sequence_scores(positions: Iterable[ScoredPosition | None]) -> SequenceScores:
    """Return the log-probabilities of a sequence, with turns for others: they may take long to decode."""
    scores = SequenceScores()
    for some in batches(positions):
        for position in some:
            scores.add(position)
        await asyncio.sleep(0)
    return scores


def scored_lists(sequences: Sequence[SequenceScores]) -> dict[str, JsonPieces]:
    """Return lists of log-probabilities and ids for each position of each sequence, the most likely first."""
    return {
        "logprobs": array_of(scores.lists(scores.logprobs) for scores in sequences),
        "logprob_token_ids": array_of(scores.lists(scores.token_ids) for scores in sequences),
    }


async def scored_arrays(sequences: Sequence[SequenceScores], top: int) -> dict[str, Any]:
    """Return the same as arrays of float32 and int32, little-endian, padded to the longest sequence.

    `logprobs_b64` and `token_ids_b64` have the shape [sequences, positions, top]; the `actual_` ones, of the tokens in
    the sequences, [sequences, positions, 1].
    """
    lengths = [len(scores) for scores in sequences]
    longest = max(lengths, default=0)
    most_likely, actual = _Columns(top), _Columns(1)
    for scores in sequences:
        for row in range(longest):
            start, end, own = (scores.ends[row], scores.ends[row + 1], scores.own[row]) if row < len(scores) else _NONE
            most_likely.add(scores, start, min(end, start + top))
            actual.add(scores, own, min(end, own + 1))
            if row % _ROWS_AT_ONCE == _ROWS_AT_ONCE - 1:
                await asyncio.sleep(0)
    return {
        "logprobs_b64": _encoded(most_likely.logprobs),
        "token_ids_b64": _encoded(most_likely.token_ids),
        "actual_logprobs_b64": _encoded(actual.logprobs),
        "actual_token_ids_b64": _encoded(actual.token_ids),
        "shape": [len(lengths), longest, top],
        "completion_lengths": lengths,
    }


_NONE = 0, 0, 0


class _Columns:
    """Two flat matrices with `width` columns, padded with minus infinity and id 0."""

    def __init__(self, width: int) -> None:
        self.logprobs, self.token_ids = array("f"), array("i")
        self._no_logprobs, self._no_ids = array("f", [-math.inf] * width), array("i", [0] * width)

    def add(self, scores: SequenceScores, start: int, end: int) -> None:
        """Add a row."""
        row = scores.logprobs[start:end]
        if any(map(math.isnan, row)):
            row = array("f", [-math.inf if math.isnan(value) else value for value in row])
        self.logprobs += row + self._no_logprobs[len(row) :]
        self.token_ids += scores.token_ids[start:end] + self._no_ids[len(row) :]


def _encoded(values: "array[Any]") -> JsonPieces:
    """Return an array as a text of base64."""
    if sys.byteorder == "big":
        values.byteswap()
    data = memoryview(values).cast("B")

    def pieces() -> Iterator[bytes]:
        yield b'"'
        for start in range(0, len(data), _ENCODED_AT_ONCE):
            yield base64.b64encode(data[start : start + _ENCODED_AT_ONCE])
        yield b'"'

    return JsonPieces(pieces)
