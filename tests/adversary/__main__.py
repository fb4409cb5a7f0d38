"""Attacks a coordinator with expensive requests, and reports those that a background client suffers from.

With --stores, what a coordinator stores is attacked, with --parsers, its parsers of replies. With --hostile-worker, a
worker attacks the others of its model instead; with --seed or --draws a drawn one.
"""

import argparse
import asyncio
import json
import math
import sys
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from time import monotonic

from tests.adversary.attack import Attack
from tests.adversary.draws import draw
from tests.adversary.parsed_draws import PARSERS, draw_parsed
from tests.adversary.report import line_of, record_of, summary_of, table_of
from tests.adversary.rows import ROWS
from tests.adversary.runner import Measurement, run_attacks
from tests.adversary.stored_draws import STORES, draw_stored
from tests.adversary.worker_attacks import WORKER_ATTACKS
from tests.adversary.worker_runner import WITH_KEY, lying_fleet


def _attacks(arguments: argparse.Namespace) -> dict[str, Attack]:
    """Return the selected attacks by what selects each on the command line."""
    if arguments.seed or arguments.draws is not None:
        drawn = draw_stored if arguments.stores else draw_parsed if arguments.parsers else draw
        return {f"--seed {seed}": drawn(seed) for seed in _seeds(arguments)}
    return {f"--row {name!r}": ROWS[name] for name in arguments.row or ROWS}


async def _run(attacks: dict[str, Attack], arguments: argparse.Namespace) -> list[tuple[str, Measurement]]:
    labels = list(attacks)
    done: list[tuple[str, Measurement]] = []
    deadline = _deadline(arguments)
    options = STORES if arguments.stores else PARSERS if arguments.parsers else ()
    measurements = run_attacks(list(attacks.values()), arguments.limit, not arguments.once, options)
    async with aclosing(measurements):  # it ends the servers, also of those that are cut short
        async for measurement in measurements:
            done.append((labels[len(done)], measurement))
            sys.stdout.write(line_of(*done[-1]))
            if measurement.violates:
                sys.stdout.writelines(f"{count:>24} x {place}\n" for place, count in measurement.places.items())
            sys.stdout.flush()
            if arguments.json:
                arguments.json.write_text(json.dumps([record_of(*each) for each in done], indent=1) + "\n")
            if monotonic() > deadline:
                break
    return done


def _deadline(arguments: argparse.Namespace) -> float:
    return math.inf if arguments.minutes is None else monotonic() + 60 * arguments.minutes


async def _run_worker_attacks(seeds: Sequence[int], deadline: float) -> int:
    violations = 0
    async with lying_fleet(*WITH_KEY) as fleet:
        for attack in () if seeds else WORKER_ATTACKS:
            violations += _report(attack.name, await fleet.attack(attack))
        for seed in seeds:
            name, problems = await fleet.endure(seed)
            violations += _report(f"--seed {seed}: {name}", problems)
            if monotonic() > deadline:
                break
    return 1 if violations else 0


def _report(name: str, problems: list[str]) -> bool:
    sys.stdout.write(f"{'; '.join(problems) or 'ok':>12}  {name}\n")
    sys.stdout.flush()
    return bool(problems)


def _seeds(arguments: argparse.Namespace) -> Sequence[int]:
    """Return the selected seeds."""
    return arguments.seed or range(arguments.first, arguments.first + (arguments.draws or 0))


def main() -> int:
    """Run the selected attacks, or all named ones; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.adversary", description=__doc__)
    named = "run this named attack (tests/adversary/rows.py); repeat for more"
    parser.add_argument("--row", action="append", choices=list(ROWS), metavar="NAME", help=named)
    parser.add_argument("--seed", action="append", type=int, help="run the attack of this seed; repeat for more")
    parser.add_argument("--draws", type=int, help="run the attacks of so many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first of them (default: 0)")
    parser.add_argument("--minutes", type=float, help="end after the attack that runs then")
    parser.add_argument("--limit", type=float, default=30.0, help="seconds until an attack is given up (default: 30)")
    parser.add_argument("--stores", action="store_true", help="draw attacks on a coordinator that stores all there is")
    parser.add_argument("--parsers", action="store_true", help="draw attacks on a coordinator that parses replies")
    parser.add_argument(
        "--hostile-worker",
        action="store_true",
        help="let a worker attack, not a client",
    )
    parser.add_argument("--once", action="store_true", help="report violations without repeating them")
    parser.add_argument("--json", type=Path, help="write all measurements into this file")
    arguments = parser.parse_args()
    if arguments.hostile_worker:
        return asyncio.run(_run_worker_attacks(_seeds(arguments), _deadline(arguments)))
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
    done = asyncio.run(_run(_attacks(arguments), arguments))
    sys.stdout.write(f"\n{table_of(done)}\n{summary_of(done)}")
    return 1 if any(measurement.violates for _, measurement in done) else 0


if __name__ == "__main__":
    sys.exit(main())
