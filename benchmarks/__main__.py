"""`python -m benchmarks`: runs the selected parts, prints tables, writes one JSON file for each part."""

import json
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from benchmarks import (
    behind,
    cold_prompts,
    embeddings,
    engine_messages,
    fairness,
    history,
    history_cost,
    long_calls,
    long_prompts,
    overload,
    parsing,
    per_request,
    pictures,
    render,
    rest,
    routing,
    soak,
    streaming,
    trajectories,
)

RESULTS = Path(__file__).parent / "results"

Part = dict[str, Any]
"""Results by title: a table is a list of rows."""


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much is measured."""

    streams: Sequence[int]
    conversations: int
    soak_minutes: float


def _rest(_: Amounts) -> Part:
    return {
        "rest": rest.start_and_rest(),
        "after_stop_match": rest.after_stop_match(),
        "after_disconnect": rest.after_disconnect(),
    }


def _streaming(amounts: Amounts) -> Part:
    rows = []
    for row in streaming.run(amounts.streams):
        click.echo(f"  measured: {row['case']}, {row['streams']} streams", err=True)
        rows.append(row)
    return {"streaming": rows}


def _history(amounts: Amounts) -> Part:
    return {
        "history_cost": list(history_cost.turns()),
        "history_flood": history_cost.flood(),
        "history_mismatches": list(history.run(amounts.conversations)),
    }


PARTS: Mapping[str, Callable[[Amounts], Part]] = {
    "rest": _rest,
    "streaming": _streaming,
    "per-request": lambda amounts: {"per_request": list(per_request.run(amounts.streams))},
    "embeddings": lambda _: embeddings.run(),
    "fleet": lambda _: {"fleet": list(streaming.run_fleets())},
    "parsing": lambda _: {"parsing": list(parsing.run())},
    "long-calls": lambda _: {"long_calls": list(long_calls.run())},
    "cold-prompts": lambda _: {"cold_prompts": list(cold_prompts.run())},
    "render": lambda _: {"render": list(render.run())},
    "long-prompts": lambda _: {"long_prompts": list(long_prompts.run())},
    "pictures": lambda _: pictures.run(),
    "behind": lambda _: {"behind": list(behind.run())},
    "overload": lambda _: {"overload": overload.run()},
    "history": _history,
    "trajectories": lambda _: {
        "trajectories": list(trajectories.run()),
        "messages_of_vllm": list(engine_messages.run()),
    },
    "routing": lambda _: {"routing": list(routing.run())},
    "fairness": lambda _: fairness.run(),
    "soak": lambda amounts: {"soak": list(soak.run(60 * amounts.soak_minutes))},
}
"""The benchmarks by name, in their order."""


@click.command()
@click.option("--streams", default="1,16,64,256,1024", show_default=True, help="Numbers of streams, with commas.")
@click.option("--only", type=click.Choice(list(PARTS)), multiple=True, help="Run this part; repeat for more.")
@click.option("--conversations", default=500, show_default=True, help="Conversations to hold with the real engine.")
@click.option("--soak-minutes", default=10.0, show_default=True, help="Minutes of load for the memory of processes.")
@click.option("--results", type=click.Path(path_type=Path), default=RESULTS, show_default=True, help="Folder to write.")
def main(streams: str, only: Sequence[str], conversations: int, soak_minutes: float, results: Path) -> None:
    """Measure the coordinator and the worker on this machine."""
    amounts = Amounts([int(count) for count in streams.split(",")], conversations, soak_minutes)
    results.mkdir(parents=True, exist_ok=True)
    for name in only or PARTS:
        measured = PARTS[name](amounts)
        for title, values in measured.items():
            _show(title.replace("_", " "), values)
        path = results / f"{name}.json"
        path.write_text(json.dumps(machine() | measured, indent=1) + "\n")
        click.echo(f"\nwritten to {path}")


def machine() -> Part:
    """Return when and on what the figures were taken."""
    return {
        "when": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "cpus": len(os.sched_getaffinity(0)),
    }


def _show(title: str, values: Any) -> None:
    if isinstance(values, list):
        print_table(title, values)
    else:
        print_mapping(title, values)


def print_mapping(title: str, values: Mapping[str, Any]) -> None:
    """Print names and values."""
    click.echo(f"\n{title}")
    for name, value in values.items():
        click.echo(f"  {name:<24} {_cell(value)}")


def print_table(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows under their names."""
    click.echo(f"\n{title}")
    table = [list(rows[0]), *([_cell(value) for value in row.values()] for row in rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    for line in table:
        click.echo("  " + "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))


def _cell(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
