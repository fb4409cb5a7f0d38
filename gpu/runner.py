"""Runs each step in a process of its own, within its time limit, and ends whatever it leaves running."""

import contextlib
import ctypes
import json
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from gpu.machine import describe_machine

PASSED, PARTIAL, SKIPPED, FAILED = "passed", "partial", "skipped", "failed"
"""A step is partial if it skipped some of its parts."""
PARTS = "parts.json"
"""Where a step keeps the results of its parts, in its folder."""
_SET_CHILD_SUBREAPER = 36
_LAST_LINES = 40


@dataclass(frozen=True, slots=True)
class Planned:
    """A step to be run: the command writes `result` into a file if it ends by itself."""

    name: str
    command: Sequence[str]
    limit_s: float


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What became of a step."""

    step: str
    status: str
    seconds: float = 0.0
    reason: str = ""
    result: dict[str, Any] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write it as JSON into the folder of all results."""
        (folder / f"{self.step}.json").write_text(json.dumps(asdict(self), indent=1, default=str) + "\n")


def run_steps(
    steps: Sequence[Planned],
    out: Path,
    *,
    within_s: float = float("inf"),
    archive: Path | None = None,
    progress: Callable[[str], None] = print,
) -> list[StepOutcome]:
    """Run one step after the other; write NAME.json for each, summary.json, and an archive of all after each step.

    No step starts or goes on after `within_s`.
    """
    adopt_orphans()
    out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + within_s
    outcomes: list[StepOutcome] = []
    machine = describe_machine()
    progress(json.dumps(machine))
    for step in steps:
        limit_s = min(step.limit_s, end - time.monotonic())
        if limit_s > 0:
            progress(f"{step.name}: started, limit {limit_s:.0f} s")
            outcome = run_step(step, out, limit_s)
        else:
            outcome = StepOutcome(step.name, SKIPPED, reason="no time is left")
        outcomes.append(outcome)
        outcome.write(out)
        _summarize(machine, outcomes, out)
        if archive:
            _archive(out, archive)
        progress(f"{step.name}: {outcome.status} in {outcome.seconds:.0f} s {outcome.reason}".rstrip())
    return outcomes


def run_step(step: Planned, out: Path, limit_s: float) -> StepOutcome:
    """Run a step until it ends or its limit has passed, then end its processes."""
    log, written = out / f"{step.name}.log", out / f"{step.name}.json"
    for earlier in (written, out / step.name / PARTS):
        earlier.unlink(missing_ok=True)
    started = time.monotonic()
    with log.open("wb") as output, _ended_descendants():
        process = subprocess.Popen(step.command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code: int | None = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = None
            process.kill()
            process.wait()
    seconds = round(time.monotonic() - started, 3)
    if code is not None and written.exists():
        return StepOutcome(**{**json.loads(written.read_text()), "seconds": seconds})
    parts = out / step.name / PARTS
    result = {"parts": json.loads(parts.read_text())} if parts.exists() else {}
    reason = f"over its limit of {limit_s:.0f} s" if code is None else f"ended with {code}"
    return StepOutcome(step.name, FAILED, seconds, f"{reason}:\n{_tail(log)}", result)


def adopt_orphans() -> None:
    """Become the parent of descendants whose parents end: so a step's servers can still be found."""
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@contextlib.contextmanager
def _ended_descendants() -> Iterator[None]:
    """Kill the processes that were started within a with block, with their descendants."""
    own = psutil.Process()
    before = set(own.children(recursive=True))
    try:
        yield
    finally:
        # The killed ones' children come to this process: until there are none.
        while left := [each for each in own.children(recursive=True) if each not in before]:
            for process in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(left, timeout=5)


def _summarize(machine: dict[str, Any], outcomes: Sequence[StepOutcome], out: Path) -> None:
    summary = {"machine": machine, "steps": [asdict(each) for each in outcomes]}
    (out / "summary.json").write_text(json.dumps(summary, indent=1, default=str) + "\n")


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-_LAST_LINES:])


def _archive(out: Path, archive: Path) -> None:
    """Pack results and logs, without models and caches."""
    partial = archive.with_name(f"{archive.name}.partial")
    with tarfile.open(partial, "w:gz") as packed:
        for path in sorted(out.rglob("*")):
            inside = path.relative_to(out)
            if path.is_file() and not {"models", "cache"} & set(inside.parts):
                packed.add(path, str(inside))
    partial.replace(archive)


def table(outcomes: Sequence[StepOutcome]) -> str:
    """Return a line for each step."""
    return "\n".join(
        f"{each.step:<14} {each.status:<8} {each.seconds:7.1f} s  {each.reason.partition(chr(10))[0]}".rstrip()
        for each in outcomes
    )
