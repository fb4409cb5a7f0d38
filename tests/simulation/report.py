"""Prints results: failures, rates, and what the runs reached."""

import sys
from pathlib import Path

from tests.simulation.coverage import DEMANDED
from tests.simulation.run import Result
from tests.simulation.runner import Campaign
from tests.simulation.script import Script

_SHOWN_VIOLATIONS = 6


def print_result(result: Result) -> None:
    """Print one run and what it violated."""
    sys.stdout.write(f"seed {result.seed}: {result.virtual_s:.1f} virtual s, {result.callbacks} callbacks, ")
    sys.stdout.write(f"trace {result.trace}, {dict(result.endings)}\n")
    for violation in result.violations[:_SHOWN_VIOLATIONS]:
        sys.stdout.write(f"    {violation}\n")
    sys.stdout.flush()


def print_script(script: Script, path: Path) -> None:
    """Print a shrunk script, which was written to a file, and how to keep it."""
    name = f"seed-{script.seed}"
    sys.stdout.write(f"    shrunk to {len(script.events)} events: python -m tests.simulation --script {path}\n")
    sys.stdout.write(f"{script.to_json()}")
    sys.stdout.write(
        f"    to keep it, paste it into tests/simulation/scripts/{name}.json, and add ({name!r}, what it must\n"
    )
    sys.stdout.write("    meet: a name from the summary) to the scripts of tests/simulation/test_kept_scripts.py\n")
    sys.stdout.flush()


def print_summary(campaign: Campaign) -> None:
    """Print the rate, how requests ended, and how often everything happened; name what never did."""
    seconds = campaign.seconds
    sys.stdout.write(f"\n{campaign.runs} runs, {campaign.failed} failed, {seconds:.0f} s, ")
    sys.stdout.write(f"{campaign.runs / seconds:.2f} a second, {campaign.virtual_s / seconds:.0f} virtual s each\n")
    sys.stdout.write(f"{campaign.callbacks} callbacks, {campaign.endings.total()} requests\n\n")
    others = sorted(set(campaign.reached) - set(DEMANDED))
    width = max(map(len, (*DEMANDED, *others)))
    sys.stdout.write(f"{'what happened':{width}}  times  in runs\n")
    for name in [*DEMANDED, *others]:
        mark = "  NEVER" if name in DEMANDED and not campaign.reached_in[name] else ""
        sys.stdout.write(f"{name:{width}}  {campaign.reached[name]:5}  {campaign.reached_in[name]:5}{mark}\n")
    sys.stdout.flush()
