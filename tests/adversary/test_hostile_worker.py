"""A hostile worker changes no other worker, and fails neither requests nor operations."""

import itertools
import time

import pytest

from tests.adversary.worker_attacks import WORKER_ATTACKS
from tests.adversary.worker_runner import WITH_ADMIN_ROUTES, WITH_KEY, lying_fleet

pytestmark = pytest.mark.ci

_DRAWS = 3
_LONG_S = 300.0
"""Of each long run."""
_OPTIONS = pytest.mark.parametrize("options", [WITH_KEY, ()], ids=["with a key", "without admin routes"])


@pytest.mark.slow
@_OPTIONS
async def test_no_lie_of_a_worker_reaches_others(options: tuple[str, ...]) -> None:
    """Whatever it announces; without a key and --enable-rl a coordinator follows nothing at all."""
    async with lying_fleet(*options) as fleet:
        problems = {attack.name: await fleet.attack(attack) for attack in WORKER_ATTACKS}

    assert {name: found for name, found in problems.items() if found} == {}


@pytest.mark.slow
async def test_requests_that_a_worker_starves_are_answered_by_others() -> None:
    """One that answers some requests, and never the others."""
    async with lying_fleet("--silence-timeout=1") as fleet:
        assert await fleet.starve() == []


@pytest.mark.slow
@_OPTIONS
async def test_requests_that_a_worker_holds_by_a_pause_of_its_own_are_answered_by_others(
    options: tuple[str, ...],
) -> None:
    """Nobody ordered it, and all others are idle."""
    async with lying_fleet(*options, "--silence-timeout=1") as fleet:
        assert await fleet.hold() == []


@pytest.mark.slow
async def test_a_worker_that_leaves_out_what_it_is_gets_nothing() -> None:
    """It would be taken to be equal to all others, and continue their replies."""
    async with lying_fleet() as fleet:
        assert await fleet.hide() == []


@pytest.mark.long
async def test_pictures_that_a_worker_does_not_look_at_are_answered_by_others() -> None:
    """It never answers a call about them, and has the least to do."""
    async with lying_fleet() as fleet:
        assert await fleet.blind() == []


async def harmed(options: tuple[str, ...], first: int, draws: int | None, end_s: float = float("inf")) -> list[str]:
    """Return a line for each drawn worker that others suffered from, of those that come before a moment."""
    found = []
    async with lying_fleet(*options) as fleet:
        for seed in itertools.islice(itertools.count(first), draws):
            name, problems = await fleet.endure(seed)
            found += [f"--seed {seed}: {name}: {'; '.join(problems)}"] if problems else []
            if time.monotonic() > end_s:
                break
    return found


@pytest.mark.slow
async def test_drawn_workers_harm_no_stream_at_another() -> None:
    """Some of them; `python -m tests.adversary --hostile-worker --draws 100` lets more come."""
    assert await harmed(WITH_KEY, 0, _DRAWS) == []


@pytest.mark.long
@pytest.mark.timeout(_LONG_S + 300)
@_OPTIONS
async def test_many_drawn_workers_harm_no_stream_at_another(options: tuple[str, ...]) -> None:
    """Ten minutes of them, with and without admin routes."""
    assert await harmed(options, 1_000 if options else 2_000, None, time.monotonic() + _LONG_S) == []


@pytest.mark.slow
async def test_without_a_key_a_worker_commands_all_others() -> None:
    """Where --enable-rl is on, as is documented: the attacks find what they look for."""
    async with lying_fleet(*WITH_ADMIN_ROUTES) as fleet:
        (pause,) = (attack for attack in WORKER_ATTACKS if attack.name == "a newer pause without a record")

        assert await fleet.attack(pause)
