"""`make simulate`: runs fleets in virtual time, counts what they reached, and shrinks those that fail."""

# isort: skip_file
from tests.simulation import chance  # before tokenwire, whose clocks it replaces

import argparse
import sys
from pathlib import Path

from tests.simulation.coverage import LONG_RUN, missed_cases
from tests.simulation.report import print_result, print_script, print_summary
from tests.simulation.run import run_script
from tests.simulation.runner import Campaign, run_seeds
from tests.simulation.script import Script, generate_script
from tests.simulation.shrink import shrink

__all__ = ["chance"]


def main() -> int:
    """Simulate what the command line names; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="number of runs (default: 200)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first one (default: 0)")
    parser.add_argument("--processes", type=int, default=1, help="processes that share them (default: 1)")
    parser.add_argument("--stop", action="store_true", help="stop at the first run that fails; no case is demanded")
    parser.add_argument("--failures", type=Path, help="directory for the shrunk scripts of runs that fail")
    parser.add_argument("--script", type=Path, help="run this script instead, as --failures has them")
    parser.add_argument("--log", type=Path, help="write the trace of a single run into this file")
    parser.add_argument("--print-script", action="store_true", help="print the script of the first seed, run nothing")
    arguments = parser.parse_args()
    if arguments.print_script:
        sys.stdout.write(generate_script(arguments.first).to_json())
        return 0
    if arguments.script is not None or arguments.log is not None:
        return _run_one(arguments.script, arguments.first, arguments.log)
    campaign = Campaign()
    for result in run_seeds(range(arguments.first, arguments.first + arguments.seeds), arguments.processes):
        campaign.add(result)
        if result.violations:
            print_result(result)
            if arguments.failures is not None:
                arguments.failures.mkdir(parents=True, exist_ok=True)
                path = arguments.failures / f"seed-{result.seed}.json"
                script = shrink(generate_script(result.seed))
                path.write_text(script.to_json())
                print_script(script, path)
            if arguments.stop:
                break
        campaign.show_progress(arguments.seeds)
    print_summary(campaign)
    return 1 if campaign.failed or (not arguments.stop and misses_cases(campaign)) else 0


def misses_cases(campaign: Campaign) -> bool:
    """Return whether a long run has never met a case that it must meet, and name it."""
    missed = list(missed_cases(campaign.reached_in)) if campaign.runs >= LONG_RUN else []
    for name in missed:
        sys.stderr.write(f"{campaign.runs} runs, and never: {name}\n")
    return bool(missed)


def _run_one(path: Path | None, seed: int, log: Path | None) -> int:
    script = generate_script(seed) if path is None else Script.from_json(path.read_text())
    if log is None:
        result = run_script(script)
    else:
        with log.open("w") as file:
            result = run_script(script, file)
    print_result(result)
    return 1 if result.violations else 0


if __name__ == "__main__":
    sys.exit(main())
