"""Draws the plots of the documentation from the results of `make bench` and `make faults`: `make plots`."""

import io
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure

RESULTS = Path(__file__).parent / "results"
PLOTS = Path(__file__).parents[1] / "docs" / "plots"

_INK = "#010203"
"""What is drawn in the color of text; no other color."""
_THEMES = """
   svg {color: #1f2328; color-scheme: light dark}
   @media (prefers-color-scheme: dark) {svg {color: #e6edf3}}
  """
"""The color of text in light and dark; the background is the page's."""
_STYLE = {
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), _INK),
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), "none"),
    "figure.constrained_layout.w_pad": 0.12,  # fonts of readers are wider than the one that is measured
    "svg.hashsalt": "tokenwire",  # else ids differ from run to run
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "lines.linewidth": 2,
    "axes.prop_cycle": cycler(color=["#2a6fdb", "#e07b00", "#6b7280", "#16875b"]),
}
_SIZE = (9, 3.6)
_KILLS = {
    "kill -9 of one of three workers": "greedy: continues from its tokens",
    "kill -9, seeded": "seeded: generated again from its start",
}

Results = Mapping[str, Any]
"""The content of one file of results."""


def cost(per_token: Results, per_request: Results) -> Figure:
    """CPU time of the coordinator's process by the number of streams, beside servers that send constants."""
    figure = Figure(_SIZE, layout="constrained")
    left, right = figure.subplots(1, 2)
    names = {"plain": "tokenwire", "bare uvicorn": "bare uvicorn, constants", "bare writes": "bare writes"}
    _lines(left, per_token["streaming"], names, "coordinator_us_per_token")
    left.set(title="per streamed token", ylabel="CPU, µs", yscale="log")
    left.yaxis.set_major_formatter("{x:g}")
    names = {"coordinator": "tokenwire", "bare uvicorn": "bare uvicorn, constants"}
    _lines(right, per_request["per_request"], names, "us_per_request")
    right.set(title="per request of one token", ylabel="CPU, µs")
    right.set_ylim(bottom=0)
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xlabel("concurrent streams")
        axes.legend()
    return figure


def _lines(axes: Axes, rows: Iterable[Results], names: Mapping[str, str], value: str) -> None:
    rows = list(rows)
    for case, label in names.items():
        points = [(row["streams"], row[value]) for row in rows if row["case"] == case]
        axes.plot(*zip(*points, strict=True), marker="o", label=label)


def kill(faults: Results) -> Figure:
    """Gaps between tokens of all streams around a SIGKILL of one worker of three: a second before it to 6 s after."""
    figure = Figure(_SIZE, layout="constrained")
    recorded = {each["fault"]: each for each in faults["faults"]}
    panels = figure.subplots(1, len(_KILLS), sharey=True)
    for axes, (fault, title) in zip(panels, _KILLS.items(), strict=True):
        around = [each for each in recorded[fault]["gaps"] if -1 <= each[0] <= 6]
        at, median, longest = zip(*around, strict=True)
        axes.axvline(0, color="#dc2626", linewidth=1)
        axes.plot(at, longest, color="#e07b00", label="longest of all streams")
        axes.plot(at, median, color="#2a6fdb", label="median")
        axes.set(title=title, xlabel="seconds after kill -9")
        streams, lost = recorded[fault]["streams"], recorded[fault]["lost"]
        axes.text(0.98, 0.5, f"{streams} streams, {lost} lost", transform=axes.transAxes, ha="right")
    panels[0].set_ylabel("gap between tokens, ms")
    panels[0].set_ylim(bottom=0)
    panels[0].legend(loc="upper right")
    return figure


def routing(results: Results) -> Figure:
    """Prompt tokens found in a worker's prefix cache, by load and routing policy."""
    rows = results["routing"]
    loads = [load for load in dict.fromkeys(row["load"] for row in rows) if _cached(rows, load)]
    figure = Figure(_SIZE, layout="constrained")
    axes = figure.subplots()
    for number, policy in enumerate(("round-robin", "load", "affinity")):
        cached = [
            100 * row["cached"] for load in loads for row in rows if (row["load"], row["policy"]) == (load, policy)
        ]
        bars = axes.barh([index + 0.27 * (number - 1) for index in range(len(loads))], cached, 0.25, label=policy)
        axes.bar_label(bars, fmt="%.0f", padding=2, fontsize=8)
    axes.set_yticks(range(len(loads)), loads)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set(xlabel="prompt tokens from the prefix cache, %", xlim=(0, 100))
    axes.legend(title="--routing", loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _cached(rows: Iterable[Results], load: str) -> bool:
    return any(row["cached"] > 0.01 for row in rows if row["load"] == load)


def memory(soak: Results) -> Figure:
    """Resident memory of both processes under a hundred clients."""
    rows = soak["soak"]
    minutes = [row["minutes"] for row in rows]
    figure = Figure(_SIZE, layout="constrained")
    axes = figure.subplots()
    axes.plot(minutes, [row["coordinator_mb"] for row in rows], label="coordinator, --history-mb 16")
    axes.plot(minutes, [row["worker_mb"] for row in rows], label="worker, simulated engine")
    axes.set(xlabel=f"minutes; {rows[-1]['replies']:,} replies in all", ylabel="resident memory, MB")
    axes.set_ylim(bottom=0)
    axes.legend()
    return figure


DRAWN: Mapping[str, tuple[Callable[..., Figure], tuple[str, ...]]] = {
    "cost": (cost, ("streaming", "per-request")),
    "kill": (kill, ("faults",)),
    "routing": (routing, ("routing",)),
    "memory": (memory, ("soak",)),
}
"""Plots by name, each with the files of results that it is drawn from."""


def drawn(name: str, results: Path = RESULTS) -> str:
    """Return a plot as SVG: the same text for the same results."""
    draw, files = DRAWN[name]
    return as_svg(draw, *(json.loads((results / f"{file}.json").read_text()) for file in files))


def as_svg(draw: Callable[..., Figure], *data: Any) -> str:
    """Draw a figure in the style of all plots, for light and dark pages; equal data give the same text."""
    with mpl.rc_context(_STYLE):
        written = io.StringIO()
        draw(*data).savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    text = written.getvalue().replace(_INK, "currentColor").replace("</style>", f"{_THEMES}</style>", 1)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def main() -> None:
    """Write all plots."""
    PLOTS.mkdir(parents=True, exist_ok=True)
    for name in DRAWN:
        (PLOTS / f"{name}.svg").write_text(drawn(name))


if __name__ == "__main__":
    main()
