"""`python -m benchmarks`: runs the selected parts, prints tables, writes JSON."""

import json
import platform
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks import history, history_cost, long_prompts, overload, parsing, per_request, rest, routing, streaming

_RESULTS = Path(__file__).parent / "results"


@click.command()
@click.option("--streams", default="1,16,64,256,1024", show_default=True, help="Numbers of streams, with commas.")
@click.option(
    "--only",
    type=click.Choice(
        ["streaming", "rest", "parsing", "per-request", "long-prompts", "history", "routing", "fleet", "overload"]
    ),
    help="Run one part.",
)
@click.option("--conversations", default=500, show_default=True, help="Conversations to hold with the real engine.")
@click.option("--output", type=click.Path(path_type=Path), default=_RESULTS / "latest.json", show_default=True)
def main(streams: str, only: str | None, conversations: int, output: Path) -> None:
    """Measure the coordinator and the worker on this machine."""
    results: dict[str, Any] = {
        "when": time.strftime("%Y-%m-%d %H:%M"),
        "python": platform.python_version(),
        "cpus": _cpus(),
    }
    if only in (None, "rest"):
        results["rest"] = rest.start_and_rest()
        results["after_stop_match"] = rest.after_stop_match()
        results["after_leaving"] = rest.after_disconnect()
        print_mapping("at rest", results["rest"])
        print_mapping("after a stop match", results["after_stop_match"])
        print_mapping("after a disconnect", results["after_leaving"])
    if only in (None, "streaming"):
        results["streaming"] = []
        for row in streaming.run([int(count) for count in streams.split(",")]):
            click.echo(f"  measured: {row['case']}, {row['streams']} streams", err=True)
            results["streaming"].append(row)
        print_table("streaming, one token a chunk", results["streaming"])
    if only in (None, "per-request"):
        results["per_request"] = per_request.measure()
        print_mapping("streamed chats of one token", results["per_request"])
    if only in (None, "fleet"):
        results["fleet"] = list(streaming.run_fleets())
        print_table("streaming from one worker and from many", results["fleet"])
    if only in (None, "parsing"):
        results["parsing"] = list(parsing.run())
        print_table("a streamed tool call, by parser", results["parsing"])
    if only in (None, "long-prompts"):
        results["long_prompts"] = list(long_prompts.run())
        print_table("64 streams while long prompts arrive", results["long_prompts"])
    if only in (None, "overload"):
        results["overload"] = overload.run()
        print_mapping("ten times too much load, for a minute", results["overload"])
    if only in (None, "history"):
        results["history_cost"] = list(history_cost.turns())
        print_table("a turn whose history was seen before", results["history_cost"])
        results["history_flood"] = history_cost.flood()
        print_mapping("a flood of conversations", results["history_flood"])
        results["history_drift"] = list(history.run(conversations))
        print_table("conversations with the embedded model at temperature 1.0", results["history_drift"])
    if only in (None, "routing"):
        results["routing"] = list(routing.run())
        print_table("8 workers, by policy", results["routing"])
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(results, indent=1) + "\n")
    click.echo(f"\nwritten to {output}")


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


def _cpus() -> int:
    import os

    return len(os.sched_getaffinity(0))


if __name__ == "__main__":
    main()
