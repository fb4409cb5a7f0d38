"""Responses of a plain vLLM server become parts of a frame."""

from typing import Any

import pytest

from tests.turns import TurnsOfOthers
from tokenwire.coordinator.fleet.transport.vllm_http.response import (
    PromptScores,
    error_message,
    finish_of,
    row_of_token,
)
from tokenwire.v1 import inference_pb2 as pb

EOS = frozenset({2})
STOP = pb.FINISH_REASON_STOP


@pytest.mark.parametrize(
    ("choice", "stops", "expected"),
    [
        ({"finish_reason": "length"}, [], pb.Finish(slot=4, reason=pb.FINISH_REASON_LENGTH)),
        ({"finish_reason": "stop", "stop_reason": None}, [], pb.Finish(slot=4, reason=STOP)),
        ({"finish_reason": "stop", "stop_reason": 2}, [], pb.Finish(slot=4, reason=STOP, eos_token_id=2)),
        ({"finish_reason": "stop", "stop_reason": 2}, [2], pb.Finish(slot=4, reason=STOP, stop_token_id=2)),
        ({"finish_reason": "stop", "stop_reason": 9}, [9], pb.Finish(slot=4, reason=STOP, stop_token_id=9)),
        ({"finish_reason": "of another release"}, [], pb.Finish(slot=4, reason=STOP)),
    ],
)
def test_a_stop_id_is_distinguished_from_the_end_of_sequence(
    choice: dict[str, Any], stops: list[int], expected: pb.Finish
) -> None:
    """By the model's own ids, unless the request listed the same id."""
    assert finish_of(choice, 4, EOS, stops) == expected


def test_rows_have_the_sampled_token_and_then_the_likeliest_by_rank() -> None:
    """As many as were requested, whatever order they come in; the sampled one may be among them."""
    known = [{"token_id": 9, "logprob": -3.0, "rank": 3}, {"token_id": 7, "logprob": -1.0, "rank": 1}]
    own = {"token_id": 7, "logprob": -1.0, "rank": 1}

    for count, ids in ((1, [7, 7]), (0, [7]), (-1, [7, 7]), (3, [7, 7, 9])):
        row = row_of_token({**own, "top_logprobs": known}, count)
        assert (list(row.token_ids), row.width, list(row.sampled_ranks)) == (ids, len(ids), [1])
    assert list(row_of_token(own, 1).token_ids) == [7, 7]


def prompt_scores(*positions: dict[str, Any] | None) -> PromptScores:
    """Return the scores of a prompt with these positions."""
    scores = PromptScores()
    for position in positions:
        scores.add(position)
    return scores


async def test_a_prompt_has_rows_after_its_first_token() -> None:
    """Each begins with the prompt's own token, and has the most likely ones by rank."""
    position = {"5": {"logprob": -3.0, "rank": 8}, "6": {"logprob": -0.5, "rank": 1}}
    scores = prompt_scores(None, position, {"6": {"logprob": -0.25, "rank": 1}})
    rows = await scores.rows([4, 5, 6], 0)

    assert (list(rows.token_ids), rows.width, list(rows.sampled_ranks)) == ([5, 6], 1, [8, 1])
    rows = await prompt_scores(None, {"7": {"logprob": -9.0, "rank": 2}, **position}).rows([4, 7], 2)
    assert (list(rows.token_ids), list(rows.logprobs), rows.width) == ([7, 6, 7], [-9.0, -0.5, -9.0], 3)


async def test_scores_of_another_prompt_are_refused() -> None:
    """One of another length, or with another token."""
    with pytest.raises(ValueError, match="shorter"):
        await prompt_scores(None).rows([4, 5], 0)
    with pytest.raises(ValueError, match="not in array"):
        await prompt_scores({"5": {"logprob": -3.0, "rank": 8}}).rows([4], 0)


async def test_others_have_turns_while_a_long_prompts_rows_are_made() -> None:
    """They take microseconds each, and a prompt may have a million."""
    position = {str(token_id): {"logprob": -3.0, "rank": token_id} for token_id in range(1, 11)}
    scores = prompt_scores(None, *[position] * 999)
    turns = TurnsOfOthers()
    await scores.rows([1] * 1000, 10)
    assert turns.count > 3


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('{"error": {"message": "too long"}}', "too long"),
        ('{"message": "too long"}', "too long"),
        ('{"error": "too long"}', "too long"),
        ('{"error": {"code": 1}}', '{"error": {"code": 1}}'),
        ("<html>", "<html>"),
        ("[1]", "[1]"),
        ("", "no error message"),
        ("x" * 900, "x" * 500),
    ],
)
def test_errors_have_a_message_in_any_shape(body: str, message: str) -> None:
    """Of vLLM, of a proxy in front of it, or none."""
    assert error_message(body) == message
