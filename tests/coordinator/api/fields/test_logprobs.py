"""Log-probabilities in OpenAI's formats, as vLLM fills them."""

from typing import Any

import pytest
from pydantic_core import from_json

from tokenwire.coordinator.api.fields.logprobs import (
    LogprobStyle,
    chat_entries_json,
    chat_logprobs,
    completion_logprobs,
    completion_pieces,
    prompt_logprobs,
)
from tokenwire.coordinator.text.logprobs import ScoredPosition, ScoredToken
from tokenwire.errors import ProtocolError

INF = float("inf")
POSITION = ScoredPosition.of(ScoredToken(5, "é", -2.0, 3), ScoredToken(6, "y", -0.5, 1), ScoredToken(7, "z", -INF, 2))


STYLES = [
    (LogprobStyle(0), []),
    (LogprobStyle(2), ["é", "y"]),
    (LogprobStyle(-1), ["é", "y", "z"]),
    (LogprobStyle(0, everything=True), ["é", "y", "z"]),
    (LogprobStyle(1, as_token_ids=True), ["token_id:5"]),
]


@pytest.mark.parametrize(("style", "shown"), STYLES)
def test_a_chats_entry_has_the_requested_tokens(style: LogprobStyle, shown: list[str]) -> None:
    """The token itself with its bytes, and the most likely ones; by their texts or their ids."""
    (entry,) = from_json(b"".join(chat_logprobs([POSITION], style)))["content"]

    assert (entry["token"], entry["logprob"], entry["bytes"]) == (style.names(POSITION)[0], -2.0, [195, 169])
    assert [other["token"] for other in entry["top_logprobs"]] == shown


def test_a_chats_logprobs_are_named_in_openais_order() -> None:
    """Of a token whose text JSON escapes, and of none."""
    token = ScoredToken(8, '"\n%', -1.1234567165374756, 1)
    entry = '{"token":"\\"\\n%","logprob":-1.1234567165374756,"bytes":[34,10,37]'

    assert chat_entries_json([], LogprobStyle(1)) == b""
    assert (
        chat_entries_json([ScoredPosition.of(token)], LogprobStyle(1))
        == f'{entry},"top_logprobs":[{entry}}}]}}'.encode()
    )


def test_nan_is_null() -> None:
    """JSON has no number for it."""
    position = ScoredPosition.of(ScoredToken(5, "x", float("nan"), 1))
    (entry,) = from_json(b"".join(chat_logprobs([position], LogprobStyle(1))))["content"]

    assert entry["logprob"] is entry["top_logprobs"][0]["logprob"] is None


def test_minus_infinity_is_a_number() -> None:
    """JSON has no infinity."""
    (entry,) = from_json(b"".join(chat_logprobs([ScoredPosition.of(POSITION[2])], LogprobStyle(1))))["content"]

    assert entry["logprob"] == entry["top_logprobs"][0]["logprob"] == -9999.0


def test_completions_have_one_token_more_than_requested() -> None:
    """OpenAI counts the sampled token in addition; offsets are in characters and continue."""
    positions = [POSITION, ScoredPosition.of(*POSITION[1:])]
    logprobs, offset = completion_logprobs([5, 6], positions, LogprobStyle(1), str, offset=10)

    assert logprobs["tokens"] == ["é", "y"]
    assert logprobs["text_offset"] == [10, 11]
    assert logprobs["token_logprobs"] == [-2.0, -0.5]
    assert logprobs["top_logprobs"] == [{"é": -2.0, "y": -0.5}, {"y": -0.5, "z": -9999.0}]
    assert offset == 12


@pytest.mark.parametrize("count", [0, 1, 3_000])
def test_many_log_probabilities_are_rendered_in_pieces(count: int) -> None:
    """Each takes a few milliseconds, and all together are what is rendered at once."""
    positions, ids, style = [None, *[POSITION] * count][:count], [*range(count)], LogprobStyle(1)
    scored = [POSITION] * count

    pieces = [*completion_pieces(ids, positions, style, str)]
    assert from_json(b"".join(pieces)) == completion_logprobs(ids, positions, style, str)[0]
    chats = [*chat_logprobs(scored, style)]
    assert b"".join(chats) == b'{"content":[%b]}' % chat_entries_json(scored, style)
    assert len(chats) > 3 * count // 2_100


def test_completions_need_a_position_for_each_token() -> None:
    """Of a prompt, a worker may have sent too few."""
    with pytest.raises(ProtocolError, match="log-probabilities for each token"):
        completion_logprobs([9, 5], [POSITION], LogprobStyle(1), str)


def test_the_first_token_of_a_prompt_has_no_logprob() -> None:
    """It is decoded by itself."""
    logprobs, _ = completion_logprobs([9, 5], [None, POSITION], LogprobStyle(0), lambda token_id: f"<{token_id}>")

    assert logprobs["tokens"] == ["<9>", "é"]
    assert logprobs["token_logprobs"] == [None, -2.0]
    assert logprobs["top_logprobs"] == [None, {"é": -2.0}]
    assert logprobs["text_offset"] == [0, 3]


@pytest.mark.parametrize(
    ("positions", "shown"),
    [
        (None, None),
        ([], []),
        ([None, ScoredPosition.of(POSITION[2])], [None, {"7": {"logprob": -9999.0, "rank": 2, "decoded_token": "z"}}]),
    ],
)
def test_prompt_logprobs_are_by_token_id(positions: list[ScoredPosition | None] | None, shown: Any) -> None:
    """As in vLLM; null if not requested."""
    pieces = prompt_logprobs(positions)
    assert (None if pieces is None else from_json(b"".join(pieces))) == shown
