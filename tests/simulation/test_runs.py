"""Runs keep the promises about failure, are repeatable, and fail when a promise is broken."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.inside import run_inside

pytestmark = pytest.mark.slow

_TRACES = """
    from tests.simulation.run import run_script
    from tests.simulation.script import generate_script
    for seed in {seeds}:
        print(seed, run_script(generate_script(seed)).trace)
"""


@pytest.mark.timeout(900)
def test_a_hundred_runs_lose_double_and_alter_no_stream() -> None:
    """Every request ends, every id and text is explained, and nothing is left behind; `make simulate` runs more."""
    command = [sys.executable, "-m", "tests.simulation", "--seeds", "100"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert "100 runs, 0 failed" in done.stdout


def test_a_seed_gives_the_same_trace_in_another_process_order_and_hash_seed() -> None:
    """Otherwise a failing seed could not be looked at again."""
    seeds = list(range(12))
    first = run_inside(_TRACES.format(seeds=seeds), hash_seed=1).splitlines()
    second = run_inside(_TRACES.format(seeds=seeds[::-1]), hash_seed=2).splitlines()
    assert sorted(first) == sorted(second)
    assert len({line.split()[1] for line in first}) == len(seeds)


def test_a_script_survives_json() -> None:
    """Shrunk scripts are kept as files."""
    run_inside(
        """
        from tests.simulation.script import Script, generate_script
        assert Script.from_json(generate_script(5).to_json()) == generate_script(5)
        """
    )


def test_a_shrunk_script_is_printed_so_that_it_can_be_pasted_into_a_test() -> None:
    """Whoever sees only the output of a run has all that repeats it."""
    output = run_inside(
        """
        from pathlib import Path
        from tests.simulation.report import print_script
        from tests.simulation.script import generate_script

        print_script(generate_script(5), Path("seed-5.json"))
        """
    )
    head, *script, how, where = output.splitlines()
    assert "--script seed-5.json" in head
    assert json.loads("\n".join(script))["seed"] == 5
    assert "tests/simulation/scripts/seed-5.json" in how
    assert "test_kept_scripts" in where


def test_a_slot_that_is_free_too_early_is_found_and_shrunk(tmp_path: Path) -> None:
    """A run fails when a promise is broken."""
    output = run_inside(
        """
        import json
        from tokenwire.coordinator.fleet.slots import SlotTable
        from tests.simulation.run import run_script
        from tests.simulation.script import generate_script
        from tests.simulation.shrink import shrink

        SlotTable.give_up = SlotTable.release

        seed = next(seed for seed in range(200) if run_script(generate_script(seed)).violations)
        small = shrink(generate_script(seed), runs=60)
        assert run_script(small).violations
        print(json.dumps([seed, len(generate_script(seed).events), len(small.events)]))
        """
    )
    _, before, after = json.loads(output.splitlines()[-1])
    assert after < before / 2


def test_a_coordinator_that_believes_a_hostile_worker_is_found() -> None:
    """Without a look at signatures, what nobody ordered is desired."""
    run_inside(
        """
        from tokenwire.peer_auth.operation_keys import OperationKeys
        from tests.simulation.run import run_script
        from tests.simulation.script import generate_script

        OperationKeys.verify = lambda self, record: True
        scripts = map(generate_script, range(400))
        lies = (script for script in scripts
                if script.config["signed"] and any(event.kind == "lie" for event in script.events))
        found = (violation for script in lies for violation in run_script(script).violations)
        assert any("desires what no coordinator has ordered" in each for each in found)
        """
    )


def test_a_coordinator_that_resumes_nothing_is_found() -> None:
    """That faults go on is no excuse for a stream that ends with an error."""
    run_inside(
        """
        from tokenwire.coordinator.fleet.failover.failover import Failover
        from tests.simulation.run import run_script
        from tests.simulation.script import generate_script

        Failover.submit = lambda self, *request: self._below.submit(*request)
        found = [violation for seed in range(30) for violation in run_script(generate_script(seed)).violations]
        assert any("without a cause: The worker that generated this reply was lost" in each for each in found), found
        """
    )


def test_a_queue_that_leaves_requests_where_they_are_is_found() -> None:
    """A request that times out there is no excuse either, if a worker has had room for it."""
    run_inside(
        """
        from tokenwire.coordinator.fleet.admission.queue import AdmissionQueue
        from tests.simulation.run import run_script
        from tests.simulation.script import generate_script

        AdmissionQueue._start = lambda self, entry: False
        found = [violation for seed in range(30) for violation in run_script(generate_script(seed)).violations]
        assert any("queue, though a worker has room" in each for each in found), found
        """
    )


def test_a_worker_that_goes_on_with_what_a_lost_coordinator_has_left_is_found() -> None:
    """Replies end by themselves in seconds, so nothing is left of them at the end of a run."""
    run_inside(
        """
        from tokenwire.worker.services.session import Session
        from tests.simulation.run import run_script
        from tests.simulation.script import generate_script

        abort_all = Session.abort_all

        async def abort_all_in_a_drain(self):
            if self._host.is_draining:
                await abort_all(self)

        Session.abort_all = abort_all_in_a_drain
        found = (violation for seed in range(200) for violation in run_script(generate_script(seed)).violations)
        assert any("goes on with" in each and "whose session has ended" in each for each in found)
        """
    )


def test_what_ends_after_a_run_is_not_in_its_trace() -> None:
    """A coroutine that is collected runs its `finally`: what it does then has not happened in the run."""
    run_inside(
        """
        import io
        from tests.simulation.run import run_script
        from tests.simulation.script import generate_script

        for seed in range(3):
            log = io.StringIO()
            assert not run_script(generate_script(seed), log).violations
            assert log.getvalue().count("client") and "violation" not in log.getvalue()
        """
    )
