"""The artifacts of a release, built once."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the sdist, and the wheel from it; return their folder."""
    folder = tmp_path_factory.mktemp("distributions")
    command = [sys.executable, "-m", "uv", "build", "--quiet", "--out-dir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, timeout=240)
    return folder


@pytest.fixture(scope="session")
def wheel(distributions: Path) -> Path:
    """Return the wheel built from the sdist."""
    return next(distributions.glob("tokenwire-*.whl"))


@pytest.fixture(scope="session")
def sdist(distributions: Path) -> Path:
    """Return the sdist."""
    return next(distributions.glob("tokenwire-*.tar.gz"))


@pytest.fixture(scope="session")
def checkout_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a wheel from the checkout, as `pip install .` does."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, timeout=240)
    return next(folder.glob("tokenwire-*.whl"))
