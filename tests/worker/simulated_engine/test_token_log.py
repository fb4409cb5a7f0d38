"""The log of a simulated engine has what it sampled, and when it is killed too."""

import json
from pathlib import Path

import pytest

from tests.worker.simulated_engine.simulation import simulation
from tokenwire.errors import EngineFailed
from tokenwire.worker.simulated_engine.settings import SimulationSettings
from tokenwire.worker.simulated_engine.token_log import open_log


@pytest.mark.parametrize("sampled_only", [False, True])
async def test_prompts_and_tokens_are_logged(tmp_path: Path, sampled_only: bool) -> None:
    """Of each sequence, with log-probabilities if it has some."""
    log = tmp_path / "log"
    async with simulation(SimulationSettings(token_log=log, step_ms=0)) as sim:
        await sim.submit([65, 66], n=2, sampled_only=sampled_only, max_tokens=2, logprobs=0)
        await sim.finish()
        entries = [json.loads(line) for line in log.read_text().splitlines()]  # before it is closed

    begun = [entry for entry in entries if "prompt_ids" in entry]
    assert [(entry["index"], entry["prompt_ids"]) for entry in begun] == [(0, [65, 66]), (1, [65, 66])]
    for run in (entry["run"] for entry in begun):
        steps = [entry for entry in entries if entry["run"] == run and "token_ids" in entry]
        assert sum(len(entry["token_ids"]) for entry in steps) == 2
        assert all(len(entry["logprobs"]) == len(entry["token_ids"]) for entry in steps)


def test_a_log_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """It names the file."""
    with pytest.raises(EngineFailed, match=f"--sim-token-log: cannot write {tmp_path}"):
        open_log(tmp_path)
