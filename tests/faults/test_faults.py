"""Some of the faults with few streams; `make faults` injects all of them."""

from pathlib import Path

import pytest

from tests.faults.__main__ import merged_records, merged_rows
from tests.faults.scenarios import FAULTS, outcome_of

_NAMES = [
    "kill -9 of one of three workers",
    "kill -9 during a rollout: two workers of each of two revisions",
    "kill -9, seeded",
    "kill -9, pictures that are processed",
    "kill -9, batches to embed",
    "engine crash, penalties",
    "SIGTERM of a worker",
    "a request that kills workers",
]


@pytest.mark.slow
@pytest.mark.parametrize("name", _NAMES)
async def test_no_stream_is_lost_or_corrupted(tmp_path: Path, name: str) -> None:
    """Every stream equals an uninterrupted one: text, ids, finish reason and usage."""
    (fault,) = [fault for fault in FAULTS if fault.name == name]

    outcome = await outcome_of(fault, tmp_path, streams=40, tokens=80)

    assert (outcome.lost, outcome.corrupted) == (0, 0), outcome.problems


def test_a_run_of_some_faults_leaves_the_rows_of_others() -> None:
    """In their order, and also those that the table did not have."""
    names = [fault.name for fault in FAULTS[:3]]
    old = "| fault | streams |\n|---|---|\n" + "".join(f"| {name} | 1 |\n" for name in (names[2], names[0]))

    rows = merged_rows(old, [f"| {name} | 2 |\n" for name in names[1:]])

    assert rows == [f"| {names[0]} | 1 |\n", f"| {names[1]} | 2 |\n", f"| {names[2]} | 2 |\n"]
    earlier = [{"fault": names[2], "streams": 1}, {"fault": names[0], "streams": 1}]
    assert merged_records(earlier, [{"fault": names[2], "streams": 2}]) == [
        {"fault": names[0], "streams": 1},
        {"fault": names[2], "streams": 2},
    ]
