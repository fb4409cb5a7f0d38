"""Chat templates of many real models from llama-cpp-python's source package, downloaded from PyPI and cached."""

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.cache import CACHE, kept

_PACKAGE = "llama-cpp-python==0.3.36"


def real_templates() -> dict[str, str]:
    """Return templates by model name; skip the test if pip cannot download them."""
    folder = kept(CACHE / "templates", _fetch)
    return {path.stem: path.read_text() for path in sorted(folder.glob("*.jinja"))}


def _fetch(folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
    command = [*pip, "--no-binary", "llama-cpp-python", _PACKAGE]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    if result.returncode:
        pytest.skip(f"{_PACKAGE} cannot be fetched: {result.stderr[-300:]}")
    (folder / "templates").mkdir()
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.name.endswith(".jinja") else None
            if content is not None:
                (folder / "templates" / Path(member.name).name).write_bytes(content.read())
    return folder / "templates"
