"""TRL's responses are ranked lists, or padded arrays."""

import base64
from array import array
from typing import Any

from tokenwire.coordinator.api.tokens.trl_response import scored_arrays, scored_lists
from tokenwire.coordinator.text.logprobs import ScoredPosition, ScoredToken

INF = float("inf")
POSITION: ScoredPosition = [ScoredToken(5, "x", -2.0, 9), ScoredToken(6, "y", -0.5, 1), ScoredToken(7, "z", -1.0, 2)]


def test_lists_are_ranked() -> None:
    """The most likely first, the sampled one by its rank; values that JSON cannot represent are null."""
    slices = scored_lists([[POSITION, [ScoredToken(8, "", -INF, 1)]], []])
    lists = {name: [each for part in parts for each in part] for name, parts in slices.items()}

    assert lists["logprob_token_ids"] == [[[6, 7, 5], [8]], []]
    assert lists["logprobs"] == [[[-0.5, -1.0, -2.0], [None]], []]


def test_arrays_are_padded() -> None:
    """With minus infinity and id 0; the sequences' own tokens have separate arrays."""
    arrays = scored_arrays([[POSITION], [POSITION, [ScoredToken(8, "", float("nan"), 1)]]], 2)

    assert (arrays["shape"], arrays["completion_lengths"]) == ([2, 2, 2], [1, 2])
    assert _decoded(arrays["token_ids_b64"], "i") == [6, 7, 0, 0, 6, 7, 8, 0]
    assert _decoded(arrays["logprobs_b64"], "f") == [-0.5, -1.0, -INF, -INF, -0.5, -1.0, -INF, -INF]
    assert _decoded(arrays["actual_token_ids_b64"], "i") == [5, 0, 5, 8]
    assert _decoded(arrays["actual_logprobs_b64"], "f") == [-2.0, -INF, -2.0, -INF]


def _decoded(text: str, kind: Any) -> list[Any]:
    values: array[Any] = array(kind)
    values.frombytes(base64.b64decode(text))
    return list(values)
