"""`make compat`: checks each minor of vLLM in its own environment, and a fleet of two; writes JSON and a page."""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.compat.environments import ENVIRONMENTS, MINORS, CannotInstall, environment_of
from tests.compat.fleet import STREAMS, roll_minors
from tests.compat.internals import fetched, installed, moved
from tests.compat.minor import CHECKS, check_minor, provenance
from tests.compat.page import tables
from tests.marked_part import MarkedPart

MIXED = ("0.28", "0.32")


def main() -> int:
    """Run what is selected, or all; return 1 if a check failed, 2 if a vLLM cannot be had."""
    try:
        return _run(_options())
    except CannotInstall as error:
        print(error, file=sys.stderr)
        return 2


def _run(options: argparse.Namespace) -> int:
    everything = not (options.minor or options.fleet or options.sources)
    results = json.loads(options.json.read_text()) if options.json and options.json.exists() else {"minors": {}}
    holds = True
    for minor in MINORS if everything else options.minor:
        found = check_minor(environment_of(minor, options.environments), options.check or CHECKS)
        holds &= _holds(minor, found)
        _keep_other_checks(found, results["minors"].get(minor, {}))
        results["minors"][minor] = found
        _write(options, results)
    for version in options.sources:
        exact, sources = fetched(version)
        internals = {**provenance(), **asdict(moved(sources, installed()))}
        print(f"{exact} internals: {internals}", flush=True)
        holds &= not internals["missing"]
        results.setdefault("sources", {})[version] = {"version": exact, "internals": internals}
        _write(options, results)
    if everything or options.fleet:
        older, newer = (environment_of(minor, options.environments) for minor in options.fleet or MIXED)
        results["fleet"] = roll_minors(older, newer, options.streams)
        print(json.dumps(results["fleet"], indent=1), flush=True)
        holds &= not (results["fleet"]["lost"] or results["fleet"]["corrupted"])
        _write(options, results)
    return 0 if holds else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.compat", description=__doc__)
    parser.add_argument("--minor", action="append", default=[], help="check this minor alone, such as 0.29; repeatable")
    parser.add_argument("--check", action="append", choices=CHECKS, help="run this check alone; repeatable")
    parser.add_argument("--fleet", nargs=2, metavar=("OLDER", "NEWER"), help="roll a fleet of these minors alone")
    parser.add_argument("--streams", type=int, default=STREAMS, help="how many streams the fleet serves at a time")
    parser.add_argument("--sources", action="append", default=[], help="look at the sources of this version alone")
    parser.add_argument("--environments", type=Path, default=ENVIRONMENTS, help="the folder of environments, by minor")
    parser.add_argument("--json", type=Path, help="write the results into this file; what was not run stays there")
    parser.add_argument("--document", type=Path, help="write the tables into this page")
    return parser.parse_args()


def _holds(minor: str, found: dict[str, Any]) -> bool:
    """Print how the checks of a minor went; return whether all passed."""
    for name, check in found["checks"].items():
        print(f"{minor} {name}: {check['status']} in {check['seconds']:.0f} s {check['reason']}", flush=True)
    print(f"{minor} internals: {found['internals']}", flush=True)
    return all(check["status"] == "passed" for check in found["checks"].values()) and not found["internals"]["missing"]


def _keep_other_checks(found: dict[str, Any], before: dict[str, Any]) -> None:
    """Keep the results of checks that were not run now, if they are of the same version; each has its own date."""
    if before.get("version") == found["version"]:
        found["checks"] = before["checks"] | found["checks"]


def _write(options: argparse.Namespace, results: dict[str, Any]) -> None:
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    if options.document:
        MarkedPart("compat").write(options.document, tables(results))


if __name__ == "__main__":
    sys.exit(main())
