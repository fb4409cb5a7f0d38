"""TRL's responses are ranked lists, or padded arrays."""

import base64
import json
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from tests.turns import TurnsOfOthers
from tokenwire.coordinator.api.json_pieces import object_pieces
from tokenwire.coordinator.api.tokens.trl_response import (
    SequenceScores,
    scored_arrays,
    scored_lists,
    sequence_scores,
)
from tokenwire.coordinator.text.logprobs import ScoredPosition, ScoredToken

INF = float("inf")
POSITION = ScoredPosition.of(ScoredToken(5, "x", -2.0, 9), ScoredToken(6, "y", -0.5, 1), ScoredToken(7, "z", -1.0, 2))


async def scores_of(*sequences: Sequence[ScoredPosition | None]) -> list[SequenceScores]:
    """Return the scores of sequences."""
    return [await sequence_scores(positions) for positions in sequences]


def trl_body(body: Mapping[str, Any]) -> Any:
    """Return an object as its client reads it."""
    return json.loads(b"".join(object_pieces(body)))


async def test_lists_are_ranked() -> None:
    """The most likely first, the sampled one by its rank; values that JSON cannot represent are null."""
    unlikely = ScoredPosition.of(ScoredToken(8, "", -INF, 1))
    lists = trl_body(scored_lists(await scores_of([POSITION, None, unlikely], [])))

    assert lists["logprob_token_ids"] == [[[6, 7, 5], [], [8]], []]
    assert lists["logprobs"] == [[[-0.5, -1.0, -2.0], [], [None]], []]


async def test_arrays_are_padded() -> None:
    """With minus infinity and id 0; the sequences' own tokens have separate arrays."""
    scores = await scores_of([POSITION], [None, POSITION, ScoredPosition.of(ScoredToken(8, "", float("nan"), 1))])
    arrays = trl_body(await scored_arrays(scores, 2))

    assert (arrays["shape"], arrays["completion_lengths"]) == ([2, 3, 2], [1, 3])
    assert _decoded(arrays["token_ids_b64"], "i") == [6, 7, 0, 0, 0, 0, 0, 0, 6, 7, 8, 0]
    assert _decoded(arrays["logprobs_b64"], "f") == [-0.5, -1.0, *[-INF] * 6, -0.5, -1.0, -INF, -INF]
    assert _decoded(arrays["actual_token_ids_b64"], "i") == [5, 0, 0, 0, 5, 8]
    assert _decoded(arrays["actual_logprobs_b64"], "f") == [-2.0, -INF, -INF, -INF, -2.0, -INF]


async def test_long_sequences_are_scored_with_turns_for_others() -> None:
    """Their arrays are made so too, and encoded in pieces."""
    turns = TurnsOfOthers()
    scores = await scores_of([POSITION] * 20_000)
    assert turns.count > 20
    before = turns.count
    arrays = await scored_arrays(scores, 2)
    assert turns.count > before + 10
    assert all(max(map(len, object_pieces(each))) < 100_000 for each in (arrays, scored_lists(scores)))
    assert _decoded(trl_body(arrays)["token_ids_b64"], "i") == [6, 7] * 20_000


def _decoded(text: str, kind: Any) -> list[Any]:
    values: array[Any] = array(kind)
    values.frombytes(base64.b64decode(text))
    return list(values)
