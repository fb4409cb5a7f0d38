"""`python -m benchmarks.against TREE`: CPU per token and per request of this checkout against another one.

Both are measured at the same time, because CPU time itself varies by a quarter with what the machine's other guests
do; what they do to one, they do to the other. The other tree's processes are measured by this tree's code, so the two
may differ in the protocol's minor, not in its major.
"""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import click

from benchmarks import per_request, streaming

HERE = Path(__file__).resolve().parents[1]

Costs = dict[str, float]
"""µs of CPU by what they are of."""


def measure(tree: Path, streams: int) -> Costs:
    """Return the costs of the tree's coordinator and worker. Changes the working directory to the tree."""
    os.environ["PYTHONPATH"] = str(tree)
    os.chdir(tree)
    row = streaming.measure("plain", streams, {})
    return {
        "coordinator, a token": row.coordinator_us_per_token,
        "worker with its engine, a token": row.worker_us_per_token,
        "coordinator, a request": per_request.measure(),
    }


def side_by_side(other: Path, streams: int) -> tuple[Costs, Costs]:
    """Measure this tree and the other one at the same time."""
    command = [sys.executable, "-m", "benchmarks.against", "--streams", str(streams), "--only"]
    trees = (HERE, other)
    running = [subprocess.Popen([*command, str(tree)], cwd=HERE, stdout=subprocess.PIPE, text=True) for tree in trees]
    outputs = [process.communicate()[0] for process in running]
    if any(process.returncode for process in running):
        raise click.ClickException("a measurement failed")
    here, there = (json.loads(output) for output in outputs)
    return here, there


@click.command()
@click.argument("tree", type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path))
@click.option("--rounds", default=15, show_default=True, help="Measurements, each of half a minute.")
@click.option("--streams", default=64, show_default=True, help="Concurrent streams while tokens are measured.")
@click.option("--only", is_flag=True, help="Measure this one tree, and print JSON.")
def main(tree: Path, rounds: int, streams: int, only: bool) -> None:
    """Compare the CPU time of this checkout's coordinator and worker with those of another checkout, TREE.

    Prints the quotients (below 1: this checkout needs less) of each round, and their quartiles.
    """
    if only:
        click.echo(json.dumps(measure(tree, streams)))
        return
    quotients: dict[str, list[float]] = {}
    for number in range(rounds):
        here, there = side_by_side(tree, streams)
        for name, cost in here.items():
            quotients.setdefault(name, []).append(cost / there[name])
        figures = "; ".join(f"{name} {here[name]:.1f} / {there[name]:.1f} µs" for name in here)
        click.echo(f"round {number + 1}: {figures}", err=True)
    for name, values in quotients.items():
        low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
        click.echo(f"{name}: {middle:.3f} (quartiles {low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
