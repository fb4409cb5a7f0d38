"""The kit's step resume sees lost replies, and where others first differ."""

from dataclasses import replace
from typing import Any

import pytest

from gpu.steps.resume import compared, differs_at, long_cases
from tests.faults.long_replies import ChatAnswer

REPLY = ChatAnswer(text={0: "a b c"}, token_ids={0: [1, 2, 3]}, finishes={0: "length"})


def test_an_equal_reply_is_exact() -> None:
    """And not lost."""
    seen = compared(replace(REPLY), REPLY)

    assert (seen["lost"], seen["exact"], seen["differs_at"], seen["tokens"]) == (False, True, None, 3)


@pytest.mark.parametrize(
    ("ids", "place"), [([1, 9, 3], 1), ([1, 2], 2), ([1, 2, 3, 4], 3), ([], 0)], ids=["other", "short", "long", "none"]
)
def test_the_first_difference_is_found(ids: list[int], place: int) -> None:
    """Where an id is another one, missing or beyond the end."""
    other = replace(REPLY, token_ids={0: ids})

    assert differs_at(other, REPLY) == place
    assert not compared(other, REPLY)["exact"]
    assert not compared(other, REPLY)["lost"]


def test_the_first_difference_of_several_choices_counts() -> None:
    """Whichever of them it is in."""
    several = replace(REPLY, token_ids={0: [1, 2, 3], 1: [4, 5, 6]})

    assert differs_at(replace(REPLY, token_ids={0: [1, 2, 9], 1: [4, 9, 6]}), several) == 1


def test_equal_ids_with_another_text_are_not_exact() -> None:
    """A client sees both."""
    assert not compared(replace(REPLY, text={0: "a b"}), REPLY)["exact"]


@pytest.mark.parametrize("finishes", [{}, {0: "error"}])
def test_a_reply_without_its_end_is_lost(finishes: dict[int, str]) -> None:
    """Or with an error as its end."""
    undisturbed = replace(REPLY)

    assert compared(replace(REPLY, finishes=finishes), undisturbed)["lost"]


def test_an_error_is_a_lost_reply() -> None:
    """With its reason."""
    seen = compared(ConnectionError("gone"), REPLY)

    assert (seen["lost"], seen["exact"], seen["reason"]) == (True, False, "ConnectionError: gone")


def test_logprobs_are_compared_up_to_the_first_difference() -> None:
    """After it they are those of other tokens."""

    def scored(ids: list[int], *logprobs: float) -> ChatAnswer:
        entries: list[dict[str, Any]] = [{"logprob": each} for each in logprobs]
        return replace(REPLY, token_ids={0: ids}, logprobs=entries)

    seen = compared(scored([1, 2, 9], -0.5, -1.25, -9.0), scored([1, 2, 3], -0.5, -1.0, -2.0))

    assert seen["logprobs_apart"] == 0.25


def test_structured_replies_are_read_as_json() -> None:
    """Others are not."""
    numbers = replace(REPLY, text={0: "[1, 2]"})

    assert compared(numbers, numbers)["json"]
    assert compared(replace(REPLY, text={0: "[1, 2"}), numbers)["json"] is False
    assert compared(REPLY, REPLY)["json"] is None


def test_long_cases_need_no_parser() -> None:
    """They are greedy, seeded, scored and structured."""
    cases = long_cases(90)

    assert not [body for body in cases.values() if "tools" in body]
    assert [body["max_tokens"] for body in cases.values() if "seed" in body] == [90, 90]
    assert {"schema", "regex", "streamed with logprobs"} <= cases.keys()
