"""Responses of the routes of TRL's own server: ids and log-probabilities as lists, or as arrays in base64."""

import base64
import math
import sys
from array import array
from collections.abc import Iterable, Sequence
from itertools import tee
from typing import Any

from tokenwire.coordinator.text.logprobs import ScoredPosition, ScoredToken

Scored = Sequence[Sequence[ScoredPosition | None]]
"""The positions of each sequence; None for positions without log-probabilities."""


def _ranked(position: ScoredPosition | None) -> list[ScoredToken]:
    return sorted(position or (), key=lambda token: token.rank)


def scored_lists(sequences: Scored) -> dict[str, Iterable[Sequence[Any]]]:
    """Return lists of log-probabilities and ids for each position of each sequence, the most likely first.

    Each is given in slices of one sequence, which are made as they are encoded.
    """

    ranked = ([_ranked(position) for position in positions] for positions in sequences)
    scores, ids = tee(ranked)
    return {
        "logprobs": ([[[_json(token.logprob) for token in tokens] for tokens in each]] for each in scores),
        "logprob_token_ids": ([[[token.token_id for token in tokens] for tokens in each]] for each in ids),
    }


def _json(logprob: float) -> float | None:
    return logprob if math.isfinite(logprob) else None


def scored_arrays(sequences: Scored, top: int) -> dict[str, Any]:
    """Return the same as arrays of float32 and int32, little-endian, padded to the longest sequence.

    `logprobs_b64` and `token_ids_b64` have the shape [sequences, positions, top]; the `actual_` ones, of the tokens in
    the sequences, [sequences, positions, 1].
    """
    lengths = [len(positions) for positions in sequences]
    longest = max(lengths, default=0)
    most_likely, actual = _Columns(top), _Columns(1)
    for positions in sequences:
        for position in [*positions, *[None] * (longest - len(positions))]:
            most_likely.add(_ranked(position))
            actual.add(position or ())
    return {
        "logprobs_b64": most_likely.logprobs_b64,
        "token_ids_b64": most_likely.token_ids_b64,
        "actual_logprobs_b64": actual.logprobs_b64,
        "actual_token_ids_b64": actual.token_ids_b64,
        "shape": [len(lengths), longest, top],
        "completion_lengths": lengths,
    }


class _Columns:
    """Two flat matrices with `width` columns, padded with minus infinity and id 0."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._logprobs, self._token_ids = array("f"), array("i")

    def add(self, tokens: Sequence[ScoredToken]) -> None:
        """Add a row."""
        tokens = tokens[: self._width]
        missing = self._width - len(tokens)
        self._logprobs.extend(-math.inf if math.isnan(token.logprob) else token.logprob for token in tokens)
        self._token_ids.extend(token.token_id for token in tokens)
        self._logprobs.extend([-math.inf] * missing)
        self._token_ids.extend([0] * missing)

    @property
    def logprobs_b64(self) -> str:
        """The log-probabilities."""
        return _encoded(self._logprobs)

    @property
    def token_ids_b64(self) -> str:
        """The ids."""
        return _encoded(self._token_ids)


def _encoded(values: "array[Any]") -> str:
    if sys.byteorder == "big":
        values.byteswap()
    return base64.b64encode(values).decode()
