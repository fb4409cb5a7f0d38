"""`make faults`: injects all faults, prints the results, and writes docs/reference/faults.md and a JSON file.

With --only, the rows of other faults stay as they are.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.__main__ import machine
from tests.faults.scenarios import FAULTS, FaultOutcome, outcome_of
from tests.marked_part import MarkedPart

_HEAD = "| fault | streams | lost | corrupted | longest gap | budget |\n|---|---|---|---|---|---|\n"


def _row(outcome: FaultOutcome) -> str:
    fault, gap = outcome.fault, outcome.longest_gap_s
    verdict = "" if outcome.holds else " **missed**"
    return (
        f"| {fault.name} | {outcome.streams} | {outcome.lost} | {outcome.corrupted} | "
        f"{gap:.2f} s | {fault.gap_s:g} s{verdict} |\n"
    )


def merged_rows(earlier: str, rows: list[str]) -> list[str]:
    """Return the rows of an earlier table with these in place of theirs, in the order of the faults."""
    by_name = {row.split(" | ")[0]: row for row in [*earlier.splitlines(keepends=True), *rows]}
    return [by_name[name] for fault in FAULTS if (name := f"| {fault.name}") in by_name]


def merged_records(earlier: list[dict[str, Any]], records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return earlier records with these in place of theirs, in the order of the faults."""
    by_name = {record["fault"]: record for record in [*earlier, *records]}
    return [by_name[fault.name] for fault in FAULTS if fault.name in by_name]


def _record(outcome: FaultOutcome) -> dict[str, Any]:
    """Return what the file has of an outcome."""
    names = ("streams", "lost", "corrupted", "longest_gap_s")
    figures = {name: getattr(outcome, name) for name in names}
    return {"fault": outcome.fault.name, **figures, "gaps": [list(asdict(each).values()) for each in outcome.gaps]}


def main() -> int:
    """Run the selected faults, or all; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--only", help="run faults whose name contains this")
    parser.add_argument("--streams", type=int, help="run them under this many streams")
    parser.add_argument("--document", type=Path, help="write the table into this file")
    parser.add_argument("--json", type=Path, help="write the results, with the gaps around each fault, into this file")
    arguments = parser.parse_args()
    if arguments.document and not arguments.document.is_file():
        parser.error(f"--document: there is no page {arguments.document}")
    rows, records, holds = [], [], True
    sys.stdout.write(_HEAD)
    for fault in FAULTS:
        if arguments.only and arguments.only not in fault.name:
            continue
        with tempfile.TemporaryDirectory(prefix="faults-") as folder:
            outcome = asyncio.run(outcome_of(fault, Path(folder), arguments.streams))
        rows.append(_row(outcome))
        records.append(_record(outcome))
        holds = holds and outcome.holds
        sys.stdout.write(rows[-1])
        for problem in outcome.problems[:3]:
            sys.stdout.write(f"    {problem}\n")
        sys.stdout.flush()
    if arguments.document:
        table = MarkedPart("table")
        rows = merged_rows(table.read(arguments.document), rows) if arguments.only else rows
        table.write(arguments.document, _HEAD + "".join(rows))
    if arguments.json:
        results: dict[str, Any] = machine() | {"faults": records}
        if arguments.only and arguments.json.is_file():  # of a run of all faults, with its date
            results = json.loads(arguments.json.read_text())
            results["faults"] = merged_records(results["faults"], records)
        arguments.json.write_text(json.dumps(results) + "\n")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
