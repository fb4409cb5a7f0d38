"""Expansions of prompts are found again."""

from typing import Any

import pytest

from tests.plain_vllm_server import PLACEHOLDER, expanded_response
from tokenwire.coordinator.fleet.transport.vllm_http.expansions import Expansions, expansion_in
from tokenwire.errors import EngineFailed
from tokenwire.v1 import inference_pb2 as pb

ONE, TWO = b"1", b"2"
PROMPT = [5, PLACEHOLDER, 6, PLACEHOLDER, 7]


def expansion(token_ids: list[int]) -> pb.ExpandResponse:
    """Return the server's expansion of a prompt."""
    return expansion_in(expanded_response(token_ids), token_ids.count(PLACEHOLDER))


def test_a_prompt_that_goes_on_is_expanded_as_its_beginning_was() -> None:
    """What follows the last placeholder stays as it is, and may differ."""
    known = Expansions()
    known.add(PROMPT, (ONE, TWO), expansion(PROMPT))

    for tail in ([7], [], [8, 9]):
        assert known.find([*PROMPT[:4], *tail], (ONE, TWO)) == expansion([*PROMPT[:4], *tail])


@pytest.mark.parametrize(
    ("token_ids", "items"),
    [(PROMPT, (TWO, ONE)), (PROMPT, (ONE,)), ([4, *PROMPT[1:]], (ONE, TWO)), (PROMPT[:3], (ONE, TWO))],
)
def test_another_prompt_is_not_known(token_ids: list[int], items: tuple[bytes, ...]) -> None:
    """With other items or in another order, or other ids before the last placeholder."""
    known = Expansions()
    known.add(PROMPT, (ONE, TWO), expansion(PROMPT))

    assert known.find(token_ids, items) is None


def test_a_prompt_that_changed_elsewhere_is_not_kept() -> None:
    """Nobody could tell how another one would change."""
    known = Expansions()
    response = expansion(PROMPT)
    response.token_ids[-1] += 1
    known.add(PROMPT, (ONE, TWO), response)
    known.add(PROMPT, (ONE, TWO), pb.ExpandResponse(token_ids=[1]))

    assert known.find(PROMPT, (ONE, TWO)) is None


def test_the_oldest_prompts_make_room() -> None:
    """By their ids, before and after expansion; one that is found, or kept again, is new."""
    size = len(PROMPT[:4]) + len(expansion(PROMPT[:4]).token_ids)
    known = Expansions(most_ids=2 * size)
    for items in ((ONE,), (TWO,), (ONE,)):
        known.add(PROMPT, items, expansion(PROMPT))
    known.add(PROMPT, (ONE, TWO), expansion(PROMPT))

    assert known.find(PROMPT, (TWO,)) is None
    assert known.find(PROMPT, (ONE,)) == known.find(PROMPT, (ONE, TWO)) == expansion(PROMPT)


@pytest.mark.parametrize(
    ("response", "message"),
    [
        ({"choices": []}, "does not report the ids"),
        ({"prompt_token_ids": [1], "mm_placeholders": None}, "does not report the ids"),
        ({"prompt_token_ids": [1], "mm_placeholders": {"image": [{"offset": 0, "length": 1}]}}, "found 1 pictures"),
    ],
)
def test_a_response_without_the_prompt_has_failed(response: Any, message: str) -> None:
    """An older server ignores what it is asked for."""
    with pytest.raises(EngineFailed, match=message):
        expansion_in(response, 2)
