"""`python -m gpu.plots LOAD_JSON SVG`: draws what the step `load` measured."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.plots import as_svg

_COLORS = {"vllm": "#e07b00", "tokenwire": "#2a6fdb"}
_SIZE = (11, 3.6)

LoadRow = Mapping[str, Any]
"""A part of the step, with the server's name."""


def rows_of(outcome: Mapping[str, Any]) -> list[LoadRow]:
    """Return the loads that `vllm bench serve` sent and that had replies."""
    parts = outcome["result"]["parts"]
    named = [{**found, "server": part.partition(",")[0]} for part, found in parts.items()]
    return [row for row in named if "output_tokens_per_s" in row]


def load(rows: Sequence[LoadRow]) -> Figure:
    """Draw throughput, delays and the CPU time of fronts by the number of streams; repeated loads are points."""
    figure = Figure(_SIZE, layout="constrained")
    throughput, first, gaps, cpu = figure.subplots(1, 4)
    completions = [row for row in rows if str(row["run"]).startswith("completions")]
    for server in dict.fromkeys(str(row["server"]) for row in completions):
        own = [row for row in completions if row["server"] == server]
        _line(throughput, server, [(row["streams"], row["output_tokens_per_s"]) for row in own])
        _line(cpu, server, [(row["streams"], front_cpu(row)) for row in own])
        for axes, name in ((first, "ttft"), (gaps, "itl")):
            _line(axes, server, [(row["streams"], row[f"{name}_p50_ms"]) for row in own])
            _line(axes, f"{server}, p99", [(row["streams"], row[f"{name}_p99_ms"]) for row in own], "--")
    throughput.set(title="output tokens per second")
    first.set(title="time to the first token, ms", yscale="log")
    gaps.set(title="gap between tokens, ms", yscale="log")
    cpu.set(title="CPU per token of fronts, µs")
    for axes in (throughput, cpu):
        axes.set_ylim(bottom=0)
    for axes in (throughput, first, gaps, cpu):
        axes.set_xscale("log", base=2)
        axes.set_xlabel("concurrent streams")
        axes.xaxis.set_major_formatter("{x:g}")
    first.legend(fontsize=8)  # for all: lines of medians are drawn through
    return figure


def front_cpu(row: LoadRow) -> float:
    """Return the CPU time for each token of all processes but the engine's, in µs."""
    return float(sum(used for part, used in row["cpu_us_per_token"].items() if part != "engine"))


def _line(axes: Axes, label: str, points: Sequence[tuple[float, float]], style: str = "-") -> None:
    color = _COLORS.get(label.partition(",")[0], "#6b7280")
    axes.plot(*zip(*sorted(points), strict=True), style, marker="o", label=label, color=color)


def drawn(outcome: Mapping[str, Any]) -> str:
    """Return the plot as SVG."""
    return as_svg(load, rows_of(outcome))


@click.command()
@click.argument("results", type=click.Path(exists=True, path_type=Path))
@click.argument("svg", type=click.Path(path_type=Path))
def main(results: Path, svg: Path) -> None:
    """Draw load.json, as the step writes it."""
    svg.write_text(drawn(json.loads(results.read_text())))


if __name__ == "__main__":
    main()
