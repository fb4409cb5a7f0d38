"""Some of the faults with few streams; `make faults` injects all of them."""

from pathlib import Path

import pytest

from tests.faults.scenarios import FAULTS, outcome_of

pytestmark = pytest.mark.slow

_NAMES = [
    "kill -9 of one of three workers",
    "kill -9 during a rollout: two workers of each of two revisions",
    "kill -9, seeded",
    "engine crash, penalties",
    "SIGTERM of a worker",
    "a request that kills workers",
]


@pytest.mark.parametrize("name", _NAMES)
async def test_no_stream_is_lost_or_corrupted(tmp_path: Path, name: str) -> None:
    """Every stream equals an uninterrupted one: text, ids, finish reason and usage."""
    (fault,) = [fault for fault in FAULTS if fault.name == name]

    outcome = await outcome_of(fault, tmp_path, streams=40, tokens=80)

    assert (outcome.lost, outcome.corrupted) == (0, 0), outcome.problems
