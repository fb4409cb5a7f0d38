"""Expensive requests cost a background client little: it waits for at most 0.5 s, and they take at most 256 MB."""

import itertools
import time

import pytest

from tests.adversary.draws import Attack, draw
from tests.adversary.known import KNOWN
from tests.adversary.report import line_of
from tests.adversary.rows import ROWS
from tests.adversary.runner import run_attacks

_DRAWS = 25
_LONG_S = 600.0
_FIRST_OF_LONG = 1_000
_ROWS_KNOWN = [row for cause in KNOWN for row in cause.rows]


def is_new(attack: Attack) -> bool:
    """Return whether an attack has none of the known causes."""
    return not any(cause.has(attack) for cause in KNOWN)


async def costly(attacks: list[Attack], limit_s: float, end_s: float = float("inf")) -> list[str]:
    """Return a line for each attack that violates, of those that begin before a moment."""
    found = []
    async for measurement in run_attacks(attacks, limit_s):
        found += [line_of("", measurement)] if measurement.violates else []
        if time.monotonic() > end_s:
            break
    return found


@pytest.mark.slow
async def test_drawn_requests_cost_others_little() -> None:
    """Some of them; `python -m tests.adversary --draws 2000` sends more."""
    attacks = itertools.islice(filter(is_new, map(draw, itertools.count())), _DRAWS)

    assert await costly(list(attacks), limit_s=2) == []


@pytest.mark.long
@pytest.mark.timeout(_LONG_S + 300)
async def test_many_drawn_requests_cost_others_little() -> None:
    """Ten minutes of them."""
    attacks = filter(is_new, map(draw, range(_FIRST_OF_LONG, _FIRST_OF_LONG + 2_000)))

    assert await costly(list(attacks), 10, end_s=time.monotonic() + _LONG_S) == []


def test_rows_have_their_known_causes() -> None:
    """And only those, so that draws avoid what they are of."""
    assert [name for name, row in ROWS.items() if not is_new(row) and name in _ROWS_KNOWN] == [
        name for name in ROWS if name in _ROWS_KNOWN
    ]


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in ROWS if name not in _ROWS_KNOWN])
async def test_requests_that_once_cost_much_cost_little(name: str) -> None:
    """Those that are mended."""
    assert await costly([ROWS[name]], limit_s=90) == []


@pytest.mark.long
@pytest.mark.parametrize("name", _ROWS_KNOWN)
async def test_known_causes_are_not_mended_yet(name: str) -> None:
    """When one is, this fails until it leaves the list."""
    assert await costly([ROWS[name]], limit_s=90) != []
