"""A hostile worker changes no other worker, and fails neither requests nor operations."""

import pytest

from tests.adversary.worker_attacks import WORKER_ATTACKS
from tests.adversary.worker_runner import WITH_ADMIN_ROUTES, WITH_KEY, lying_fleet


@pytest.mark.slow
@pytest.mark.parametrize("options", [WITH_KEY, ()], ids=["with a key", "without admin routes"])
async def test_no_lie_of_a_worker_reaches_others(options: tuple[str, ...]) -> None:
    """Whatever it announces; without a key and --enable-rl a coordinator follows nothing at all."""
    async with lying_fleet(*options) as fleet:
        problems = {attack.name: await fleet.attack(attack) for attack in WORKER_ATTACKS}

    assert {name: found for name, found in problems.items() if found} == {}


@pytest.mark.slow
async def test_without_a_key_a_worker_commands_all_others() -> None:
    """Where --enable-rl is on, as is documented: the attacks find what they look for."""
    async with lying_fleet(*WITH_ADMIN_ROUTES) as fleet:
        (pause,) = (attack for attack in WORKER_ATTACKS if attack.name == "a newer pause without a record")

        assert await fleet.attack(pause)
