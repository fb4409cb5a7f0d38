"""`python -m tests.mutation`: changes the parts that promise exactness and failover, one small thing at a time.

mutmut makes the changes, in a copy of the tree. The tests that reach a mutant judge it first; what they let live is
judged by simulated fleets. Mutants of log lines and of the words of messages are left out.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.marked_part import MarkedPart
from tests.mutation.equivalent import EQUIVALENT
from tests.mutation.judges import judge_by_simulation, judge_by_tests
from tests.mutation.mutants import Mutant, draw_sample, mutants_of
from tests.mutation.parts import JUDGES, LEFT_OUT, MUTATED
from tests.mutation.tree import copy_tree, generate, in_package
from tests.mutation.verdicts import Verdicts, verdict_table

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Judge a sample of mutants; return 1 if one survived that nothing explains."""
    arguments = _arguments()
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="mutation-"))
    modules = [each for each in MUTATED if arguments.only in each]
    copy_tree(ROOT, folder, modules, JUDGES, LEFT_OUT)
    generate(folder, arguments.processes)
    mutants = _sample(folder, modules, arguments.sample, arguments.seed)
    verdicts = Verdicts(folder / "verdicts.json")
    judge_mutants(folder, mutants, verdicts, arguments.seeds, arguments.processes)
    found = verdict_table(mutants, verdicts, EQUIVALENT)
    sys.stdout.write(found)
    if arguments.document is not None:
        MarkedPart("mutants", "end of mutants").write(arguments.document, found)
    survivors = [each for each in mutants if not verdicts.is_killed(each) and str(each) not in EQUIVALENT]
    sys.stdout.writelines(f"\n{each.name}\n    {each}\n" for each in survivors)
    return 1 if survivors else 0


def judge_mutants(folder: Path, mutants: list[Mutant], verdicts: Verdicts, seeds: int, processes: int) -> None:
    """Judge the mutants that are not known to be killed."""
    left = [each for each in mutants if not verdicts.is_killed(each)]
    by_tests = judge_by_tests(folder, left, processes) if left else {}
    for mutant in left:
        if mutant.name in by_tests:
            verdicts.add(mutant, "tests" if by_tests[mutant.name] == "killed" else None)
    left = [each for each in left if by_tests.get(each.name) == "survived" and str(each) not in EQUIVALENT]
    if seeds:
        for mutant, violation in judge_by_simulation(folder, left, seeds, processes):
            verdicts.add(mutant, None if violation is None else "simulation", violation or "")


def _sample(folder: Path, modules: list[str], size: int, seed: int) -> list[Mutant]:
    mutants = {}
    for module in modules:
        found = mutants_of(folder / "mutants", in_package(module))
        mutants[module] = [each for each in found if not (each.rewords or each.is_logging)]
    lines = {module: len((ROOT / module).read_text().splitlines()) for module in modules}
    return draw_sample(mutants, lines, size, seed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--sample", type=int, default=600, help="about how many mutants; 0: all (default: 600)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the sample (default: 1)")
    parser.add_argument("--seeds", type=int, default=200, help="runs for each that tests let live (default: 200)")
    parser.add_argument("--only", default="", help="only modules with this in their path")
    parser.add_argument("--processes", type=int, default=2, help="mutants that are judged at a time (default: 2)")
    parser.add_argument("--folder", type=Path, help="keep the copy and the verdicts here; judge anew what survived")
    parser.add_argument("--document", type=Path, help="write the table into this file")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
