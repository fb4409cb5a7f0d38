"""The two judges of a mutant: the tests that reach it, then simulated fleets."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutation.mutants import Mutant
from tests.mutation.parts import JUDGES
from tests.mutation.tree import in_package
from tests.simulation.elsewhere import first_violation

_MEMORY = 12 << 30
"""Bytes of address space: a loop that should end may fill a list."""
_SURVIVED = (0, 5, 33)
"""mutmut's codes for tests that passed, and for no tests at all."""
_NOT_JUDGED = (None, 2)
_SIMULATION_TIMEOUT_S = 1800


def judge_by_tests(folder: Path, mutants: Sequence[Mutant], processes: int) -> dict[str, str]:
    """Return what became of mutants by name: `killed` or `survived`.

    Raises RuntimeError if mutmut fails, as it does if a test fails without a mutant.
    """
    command = [sys.executable, "-m", "mutmut", "run", "--max-children", str(processes)]
    command += (each.name for each in mutants)
    if subprocess.run(command, cwd=folder, check=False, stdout=sys.stderr, preexec_fn=_limit_memory).returncode:
        judges = " ".join(JUDGES)
        raise RuntimeError(
            f"mutmut failed. Does a test fail without a mutant? cd {folder} && python -m pytest {judges}"
        )
    codes: dict[str, int | None] = {}
    for path in {in_package(each.path) for each in mutants}:
        codes |= json.loads((folder / "mutants" / f"{path}.meta").read_text())["exit_code_by_key"]
    return {
        each.name: "survived" if codes[each.name] in _SURVIVED else "killed"
        for each in mutants
        if codes[each.name] not in _NOT_JUDGED
    }


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))


def judge_by_simulation(
    folder: Path, mutants: Sequence[Mutant], seeds: int, processes: int
) -> Iterator[tuple[Mutant, str | None]]:
    """Yield mutants, each with the first violation of its runs; None: there was none."""
    with ThreadPoolExecutor(processes) as executor:
        if mutants and (violation := _simulate(folder, "", seeds)) is not None:
            raise RuntimeError(f"without a mutant: {violation}")
        found = executor.map(lambda each: _simulate(folder, each.name, seeds), mutants)
        yield from zip(mutants, found, strict=True)


def _simulate(folder: Path, name: str, seeds: int) -> str | None:
    """Return the first violation with a mutant."""
    # mutmut puts a switch before each mutated function.
    environment = os.environ | {"MUTANT_UNDER_TEST": name}
    try:
        found = first_violation(folder / "mutants", seeds, environment=environment, timeout_s=_SIMULATION_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return "a run does not end"
    except RuntimeError as error:
        return str(error).rpartition("\n")[2]
    return None if found is None else f"seed {found.seed}: {found.what}"
