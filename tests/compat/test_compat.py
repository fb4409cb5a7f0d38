"""Bar: the lowest minor of vLLM, one in the middle and the newest."""

import pytest

from tests.compat.environments import MINORS, environment_of
from tests.compat.fleet import roll_minors
from tests.compat.minor import CHECKS, check_minor

pytestmark = [pytest.mark.engine, pytest.mark.long, pytest.mark.timeout(3600)]

LOWEST, MIDDLE, NEWEST = MINORS[0], MINORS[len(MINORS) // 2 - 1], MINORS[-1]


@pytest.mark.parametrize("minor", [LOWEST, MIDDLE, NEWEST])
def test_a_minor_is_served(minor: str) -> None:
    """Its engine tests pass, replies are those of its server, and resumed ones are exact."""
    found = check_minor(environment_of(minor))

    assert {name: check["reason"] for name, check in found["checks"].items()} == dict.fromkeys(CHECKS, "")
    assert found["internals"]["missing"] == []


def test_two_minors_replace_each_other_under_load() -> None:
    """No stream is lost or corrupted."""
    found = roll_minors(environment_of(MIDDLE), environment_of(NEWEST), streams=30)

    assert (found["lost"], found["corrupted"]) == (0, 0), found["problems"]
    engines = [engine.split()[1] for engines in found["engines"] for engine in engines]
    assert {engine.rpartition(".")[0] for engine in engines} == {MIDDLE, NEWEST}
