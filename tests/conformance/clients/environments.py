"""Environments of clients, created once in tests/.cache, and small."""

import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cache import CACHE, making


@dataclass(frozen=True)
class ClientScript:
    """A client: its script, and the packages that the script imports."""

    script: str
    packages: Sequence[str]
    """As pip takes them."""
    shared: bool = False
    """Whether to lend it this project's own packages (numpy, torch, vllm, ...) instead of another copy of them all.
    Then only `packages` are installed, and nothing that they depend on."""


_TRL_NEEDS = (
    *("pandas", "python-dateutil", "pytz", "tzdata", "six"),
    *("datasets", "pyarrow", "dill", "xxhash", "multiprocess"),
)
_VERIFIERS_NEEDS = ("renderers==0.1.12", "prime-pydantic-config", "tenacity")

CLIENTS = {
    "openai": ClientScript("openai_client.py", ["openai"]),
    "anthropic": ClientScript("anthropic_client.py", ["anthropic"]),
    "rllm": ClientScript("rllm_client.py", ["rllm-model-gateway==0.1.0", "openai"]),
    "trainer-rows": ClientScript("trainer_rows_client.py", ["trl==1.16.0", *_TRL_NEEDS], shared=True),
    "verifiers": ClientScript("verifiers_client.py", ["verifiers==0.3.1", *_VERIFIERS_NEEDS], shared=True),
    "renderers": ClientScript("renderers_client.py", ["renderers==0.1.12", "prime-pydantic-config"], shared=True),
    "trl": ClientScript("trl_client.py", ["trl==1.16.0", *_TRL_NEEDS], shared=True),
    "trl-1.10": ClientScript("trl_1_10_client.py", ["trl==1.10.0", *_TRL_NEEDS], shared=True),
}
"""By name."""


def python_of(name: str) -> Path:
    """Return the interpreter of a client's environment, created if necessary."""
    client = CLIENTS[name]
    return python_with(CACHE / "clients" / name, client.packages, client.shared)


def python_with(folder: Path, packages: Sequence[str], shared: bool = False) -> Path:
    """Return the interpreter of an environment with these packages, created if necessary.

    shared: whether to lend it this project's own packages; then nothing else that `packages` depend on is installed.
    """
    wanted = "\n".join([*packages, str(shared)])
    made = folder / "packages.txt"
    with making(folder):
        if not made.is_file() or made.read_text() != wanted:
            _make(folder, packages, shared)
            made.write_text(wanted)
    return folder / "bin" / "python"


def _make(folder: Path, packages: Sequence[str], shared: bool) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder)], check=True, timeout=120)
    if shared:
        own = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
        (own / "shared.pth").write_text(sysconfig.get_paths()["purelib"])
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet"]
    options = ["--disable-pip-version-check", *(["--no-deps"] if shared else [])]
    subprocess.run([*pip, *options, *packages], check=True, timeout=1200)
