"""The runner gives each step its own process and its limit, and keeps what it leaves behind from going on."""

import json
import sys
import tarfile
from pathlib import Path
from typing import Any

import psutil

from gpu.run_step import judged
from gpu.runner import FAILED, PARTIAL, PARTS, PASSED, SKIPPED, Planned, StepOutcome, run_steps, table


def python_step(name: str, code: str, *arguments: str | Path, limit_s: float = 60) -> Planned:
    """Return a step that runs some Python."""
    return Planned(name, [sys.executable, "-c", code, *map(str, arguments)], limit_s)


def succeeding(out: Path, name: str, **fields: Any) -> Planned:
    """Return a step that writes its outcome."""
    text = json.dumps({"step": name, "status": PASSED, **fields})
    return python_step(name, "import sys; open(sys.argv[1], 'w').write(sys.argv[2])", out / f"{name}.json", text)


def quiet(_: str) -> None:
    """Print no progress."""


def test_a_steps_result_is_in_its_file_and_in_the_summary(tmp_path: Path) -> None:
    """With the machine's description, and the time that the runner measured."""
    (outcome,) = run_steps([succeeding(tmp_path, "fast", result={"rate": 7})], tmp_path, progress=quiet)

    assert (outcome.status, outcome.result) == (PASSED, {"rate": 7})
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["machine"]["cores"] >= 1
    assert summary["steps"] == [json.loads((tmp_path / "fast.json").read_text())]
    assert summary["steps"][0]["seconds"] > 0


def test_a_step_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    """Its reason ends with the end of its log."""
    steps = [python_step("broken", "raise SystemExit('no such engine')"), succeeding(tmp_path, "fine")]

    broken, fine = run_steps(steps, tmp_path, progress=quiet)

    assert broken.status == FAILED
    assert broken.reason == "ended with 1:\nno such engine"
    assert fine.status == PASSED


def test_a_result_of_an_earlier_run_is_not_taken_for_this_ones(tmp_path: Path) -> None:
    """A step that ends without a result has failed."""
    run_steps([succeeding(tmp_path, "job")], tmp_path, progress=quiet)

    (outcome,) = run_steps([python_step("job", "pass")], tmp_path, progress=quiet)

    assert outcome.status == FAILED


def test_a_step_over_its_limit_is_ended_with_its_servers(tmp_path: Path) -> None:
    """Those in sessions of their own too, and those whose parents have ended; finished parts are kept."""
    pids = tmp_path / "pids"
    server = f"import os, time; print(os.getpid(), file=open({str(pids)!r}, 'a'), flush=True); time.sleep(600)"
    orphaning = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {server!r}], start_new_session=True)"
    code = f"""
import pathlib, subprocess, sys, time
for code in ({server!r}, {orphaning!r}):
    subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
while not pathlib.Path({str(pids)!r}).exists() or len(open({str(pids)!r}).readlines()) < 2:
    time.sleep(0.01)
folder = pathlib.Path({str(tmp_path)!r}) / "slow"
folder.mkdir()
(folder / {PARTS!r}).write_text('{{"first": {{"status": "passed"}}}}')
time.sleep(600)
"""

    (outcome,) = run_steps([python_step("slow", code, limit_s=5)], tmp_path, progress=quiet)

    assert outcome.status == FAILED
    assert outcome.reason.startswith("over its limit of 5 s")
    assert outcome.result == {"parts": {"first": {"status": "passed"}}}
    started = [int(line) for line in pids.read_text().split()]
    assert len(started) == 2
    assert [pid for pid in started if psutil.pid_exists(pid)] == []


def test_servers_that_a_finished_step_left_are_ended(tmp_path: Path) -> None:
    """Their parent is gone by then."""
    pid = tmp_path / "pid"
    code = f"""
import json, subprocess, sys
server = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
open({str(pid)!r}, "w").write(str(server.pid))
json.dump({{"step": "left", "status": "passed"}}, open({str(tmp_path / "left.json")!r}, "w"))
"""

    (outcome,) = run_steps([python_step("left", code)], tmp_path, progress=quiet)

    assert outcome.status == PASSED
    assert not psutil.pid_exists(int(pid.read_text()))


def test_no_step_starts_after_the_time_for_all_of_them(tmp_path: Path) -> None:
    """It is skipped, with the reason."""
    (outcome,) = run_steps([succeeding(tmp_path, "late")], tmp_path, within_s=0, progress=quiet)

    assert (outcome.status, outcome.reason) == (SKIPPED, "no time is left")
    assert not (tmp_path / "late.log").exists()


def test_the_archive_has_results_and_logs_without_models(tmp_path: Path) -> None:
    """Only what is worth carrying."""
    (tmp_path / "job" / "models").mkdir(parents=True)
    (tmp_path / "job" / "models" / "config.json").write_text("{}")
    (tmp_path / "job" / "worker.log").write_text("ready")

    run_steps([succeeding(tmp_path, "job")], tmp_path, archive=tmp_path.with_suffix(".tar.gz"), progress=quiet)

    with tarfile.open(tmp_path.with_suffix(".tar.gz")) as packed:
        assert sorted(packed.getnames()) == ["job.json", "job.log", "job/worker.log", "summary.json"]


def test_a_step_fails_with_one_of_its_parts() -> None:
    """Its reason names them; skipped parts are none."""
    skipped = {"status": SKIPPED, "reason": "10 s are left"}
    parts = {"chat": {"status": FAILED}, "tools": skipped, "stop": {"status": PASSED}}

    outcome = judged("job", {"parts": parts})

    assert (outcome.status, outcome.reason, outcome.result) == (FAILED, "chat", {"parts": parts})
    partial = judged("job", {"parts": {"tools": skipped, "stop": parts["stop"]}})
    assert (partial.status, partial.reason) == (PARTIAL, "tools skipped: 10 s are left")
    assert judged("job", {"parts": {"stop": parts["stop"]}}).status == PASSED


def test_the_table_has_a_line_for_each_step() -> None:
    """Of a reason, its first line."""
    outcomes = [StepOutcome("job", PASSED, 12.3), StepOutcome("load", FAILED, 4, "ended with 1:\nTraceback")]

    assert [line.split() for line in table(outcomes).splitlines()] == [
        ["job", "passed", "12.3", "s"],
        ["load", "failed", "4.0", "s", "ended", "with", "1:"],
    ]
