"""Expensive requests cost a background client little: it waits for at most 0.5 s, and they take at most 256 MB."""

import time
from collections.abc import Callable, Sequence

import pytest

from tests.adversary.attack import Attack
from tests.adversary.draws import draw
from tests.adversary.parsed_draws import PARSERS, draw_parsed
from tests.adversary.report import line_of
from tests.adversary.rows import ROWS
from tests.adversary.runner import run_attacks
from tests.adversary.stored_draws import STORES, draw_stored

pytestmark = pytest.mark.ci

_DRAWS, _STORED_DRAWS, _PARSED_DRAWS = 15, 4, 8
_LONG_S = 600.0
_FIRST_OF_LONG = 1_000


async def costly(
    attacks: list[Attack], limit_s: float, end_s: float = float("inf"), options: Sequence[str] = ()
) -> list[str]:
    """Return a line for each attack that violates, of those that begin before a moment."""
    found = []
    async for measurement in run_attacks(attacks, limit_s, options=options):
        found += [line_of("", measurement)] if measurement.violates else []
        if time.monotonic() > end_s:
            break
    return found


@pytest.mark.slow
async def test_drawn_requests_cost_others_little() -> None:
    """Some of them; `python -m tests.adversary --draws 2000` sends more."""
    attacks = [draw(seed) for seed in range(_DRAWS)]

    assert await costly(attacks, limit_s=2) == []


@pytest.mark.slow
async def test_drawn_attacks_on_what_is_stored_cost_others_little() -> None:
    """Some of them; with `--stores`, the same command sends more."""
    attacks = [draw_stored(seed) for seed in range(_STORED_DRAWS)]

    assert await costly(attacks, limit_s=3, options=STORES) == []


@pytest.mark.slow
async def test_drawn_replies_that_are_parsed_cost_others_little() -> None:
    """Some of them; with `--parsers`, the same command sends more."""
    pytest.importorskip("vllm")
    attacks = [draw_parsed(seed) for seed in range(_PARSED_DRAWS)]

    assert await costly(attacks, limit_s=3, options=PARSERS) == []


@pytest.mark.long
@pytest.mark.timeout(_LONG_S + 300)
@pytest.mark.parametrize(
    ("drawn", "options"),
    [(draw, ()), (draw_stored, STORES), (draw_parsed, PARSERS)],
    ids=["requests", "stores", "parsers"],
)
async def test_many_drawn_requests_cost_others_little(drawn: Callable[[int], Attack], options: Sequence[str]) -> None:
    """Ten minutes of them."""
    attacks = [drawn(seed) for seed in range(_FIRST_OF_LONG, _FIRST_OF_LONG + 2_000)]

    assert await costly(attacks, 10, end_s=time.monotonic() + _LONG_S, options=options) == []


@pytest.mark.long
@pytest.mark.parametrize("name", list(ROWS))
async def test_requests_that_once_cost_much_cost_little(name: str) -> None:
    """Each alone."""
    assert await costly([ROWS[name]], limit_s=90) == []
