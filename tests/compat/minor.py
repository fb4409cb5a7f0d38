"""What is checked with one minor of vLLM: the engine's tests, its server's replies, and replies that are resumed."""

import json
import os
import re
import subprocess
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from gpu.kit import Kit
from gpu.parts import Parts
from gpu.servers import RunningServer
from gpu.steps.parity import compare_drawn, server_pair
from gpu.steps.resume import resume_elsewhere
from tests.compat.environments import ROOT, MinorEnvironment
from tests.compat.internals import installed, moved
from tests.compat.sources import Sources
from tests.conformance.parity.run import ParityOutcome
from tests.conformance.servers import PLAIN
from tests.faults.long_replies import CASES

ENGINE_TESTS, PARITY, FAILOVER = "engine tests", "parity", "failover"
CHECKS = (ENGINE_TESTS, PARITY, FAILOVER)
DRAWN = 60
_TOKENS = 160
FAILOVERS = {
    "greedy": {**CASES["streamed"], "max_tokens": _TOKENS},
    "seeded": {**CASES["seeded"], "max_tokens": _TOKENS},
    "log-probabilities": {**CASES["streamed with logprobs"], "max_tokens": _TOKENS},
}


@dataclass(frozen=True)
class OfMinors:
    """A difference between a minor's server and the coordinator, which follows another one."""

    path: str
    """Of the field, as a regular expression."""
    reason: str
    since: str = "0.0"
    """The first minor that differs."""
    until: str = "9999.0"
    """The last one."""

    def explains(self, minor: str, path: str) -> bool:
        """Return whether it is the reason for another value with a minor at a path."""
        differs = _numbers(self.since) <= _numbers(minor) <= _numbers(self.until)
        return differs and re.search(self.path, path) is not None


OF_MINORS = (
    OfMinors(
        r"usage\.completion_tokens_details$", "a field of newer minors, which the coordinator always has", until="0.27"
    ),
    OfMinors(
        r"logprobs\.text_offset\[", "older minors count it by text instead of by the tokens returned", until="0.31"
    ),
    OfMinors(
        r"choices\[\d+\]\.weight_versions$", "a field of newer minors, which the coordinator has not", since="0.33"
    ),
)
_WRITTEN = ("docs/reference/compatibility.md", "benchmarks/results/compat.json")
_TESTS_TIMEOUT_S = 1800


def check_minor(environment: MinorEnvironment, checks: Sequence[str] = CHECKS) -> dict[str, Any]:
    """Run checks; return what the page shows of the minor, each check with a status."""
    with tempfile.TemporaryDirectory(prefix="compat-") as folder:
        kit = replace(Kit.create("cpu", Path(folder)), engine_python=str(environment.python))
        parts, capabilities = Parts(kit.out), _capabilities(environment)
        if ENGINE_TESTS in checks:
            with parts.part(ENGINE_TESTS) as found:
                _run_engine_tests(environment, kit.out, found)
        if {PARITY, FAILOVER} & set(checks):
            _serve(kit, environment, parts, checks, capabilities["seeds_in_mixed_batches"])
    when = provenance()
    return {
        "version": environment.vllm,
        "borrowed_build": environment.borrowed_build,
        "torch": environment.version_of("torch"),
        "checks": {name: {**when, **result} for name, result in parts.results.items()},
        "capabilities": {**when, **capabilities},
        "internals": {**when, **asdict(moved(_sources(environment), installed()))},
    }


def provenance() -> dict[str, str]:
    """Return the date, and the commit of this tree, "-dirty" if something differs but the results that are written."""
    commit = _git("rev-parse", "--short=8", "HEAD")
    changed = _git("status", "--porcelain", "--", ".", *(f":!{each}" for each in _WRITTEN))
    return {"date": time.strftime("%Y-%m-%d"), "commit": f"{commit}-dirty" if changed else commit}


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def _run_engine_tests(environment: MinorEnvironment, folder: Path, found: dict[str, Any]) -> None:
    """Run the worker's tests of its engine. Raises AssertionError if any fails."""
    report = folder / "tests.xml"
    pytest = [str(environment.python), "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-m", "not long"]
    pytest += [f"--basetemp={folder}/tests", f"--junitxml={report}", "tests/worker/vllm_engine"]
    ran = subprocess.run(pytest, cwd=ROOT, capture_output=True, text=True, timeout=_TESTS_TIMEOUT_S, env=_environment())
    cases = list(ET.parse(report).iter("testcase")) if report.exists() else []  # noqa: S314 (our own file)
    found["failed"] = [case.get("name") for case in cases if {"failure", "error"} & {each.tag for each in case}]
    found["skipped"] = _skipped(cases)
    found["passed"] = len(cases) - len(found["failed"]) - sum(found["skipped"].values())
    assert ran.returncode == 0, f"failed: {found['failed']}\n{ran.stdout[-3000:]}\n{ran.stderr[-1000:]}"


def _skipped(cases: Sequence[ET.Element]) -> dict[str, int]:
    reasons = [each.get("message") or "" for case in cases for each in case if each.tag == "skipped"]
    return dict(Counter(reasons))


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": ""}


def _serve(
    kit: Kit, environment: MinorEnvironment, parts: Parts, checks: Sequence[str], seeds_in_batches: bool
) -> None:
    """Compare replies with those of this vLLM's own server, and kill a worker while it replies."""
    imported, options = {"PYTHONPATH": str(ROOT)}, environment.worker_options
    with kit.tokenwire_worker(name="worker-0", environment=imported, engine=engine_of(kit), options=options) as first:
        driver = "generate" if "using the slower driver" in first.process.log else "core"
        if PARITY in checks:
            with parts.part(PARITY) as found:
                found["driver"] = driver
                _compare(kit, first, environment.minor, found, seeds_in_batches)
        if FAILOVER not in checks:
            return
        with (
            parts.part(FAILOVER) as found,
            kit.tokenwire_worker(
                name="worker-1", number=1, environment=imported, engine=engine_of(kit), options=options
            ) as second,
        ):
            place = kit.out / "failover"
            place.mkdir()
            resume_elsewhere(kit, [first, second], place, FAILOVERS, found)
            assert found["resumed"] > 0, "the worker was killed after the replies"
            assert sorted(found["exact"]) == sorted(FAILOVERS), f"not exact: {found['streams']}"


def engine_of(kit: Kit) -> list[str]:
    """Return the arguments of all engines here."""
    return [*kit.engine_arguments(), "--enable-prefix-caching"]


def _compare(kit: Kit, worker: RunningServer, minor: str, found: dict[str, Any], seeds_in_batches: bool) -> None:
    with server_pair(kit, worker, engine_of(kit), PLAIN, {}, "plain") as urls:
        outcomes = compare_drawn(kit, urls, "plain", DRAWN, found, seeds_in_batches)
    found["compared"] = len(outcomes)
    found["of_the_minor"], found["unexplained"] = told_apart(outcomes, minor)
    assert not found["unexplained"], f"differs: {found['unexplained']}"


def told_apart(outcomes: Sequence[ParityOutcome], minor: str) -> tuple[dict[str, int], list[str]]:
    """Return how many requests differ for each reason that is known of a minor, and the others' differences."""
    known: Counter[str] = Counter()
    unexplained = []
    for outcome in outcomes:
        reasons = set()
        for difference in outcome.differences:
            reason = next((each.reason for each in OF_MINORS if each.explains(minor, difference.path)), None)
            if reason is None:
                unexplained.append(f"{outcome.request.name}: {difference}")
            else:
                reasons.add(reason)
        known.update(reasons)
    return dict(known), unexplained


def _numbers(minor: str) -> tuple[int, ...]:
    return tuple(map(int, minor.split(".")))


def _capabilities(environment: MinorEnvironment) -> dict[str, Any]:
    command = [str(environment.python), "-P", "-m", "tests.compat.probe"]
    printed = subprocess.check_output(command, cwd=ROOT, text=True, timeout=300, env=_environment())
    capabilities: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return capabilities


def _sources(environment: MinorEnvironment) -> Sources:
    command = [str(environment.python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    return Sources(Path(subprocess.check_output(command, text=True, timeout=60).strip()) / "vllm")
