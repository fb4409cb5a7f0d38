"""torchvision beside a torch for CPUs, fetched once from PyPI and kept: some models' processors need its transforms.

PyPI's build is for CUDA, so its operators are missing here. Two of them are declared, or it could not be imported.
"""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.cache import CACHE, kept

_PACKAGE = "torchvision==0.28.0"
_DECLARED = """
import torch
_operators = torch.library.Library("torchvision", "DEF")
for _name in ("nms", "qnms"):
    _operators.define(_name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""


def torchvision_environment() -> dict[str, str]:
    """Return what lets a Python process import it; skips the test where pip cannot fetch it."""
    return {"PYTHONPATH": str(kept(CACHE / "torchvision-0.28.0", _fetch, "torchvision"))}


def _fetch(folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    result = subprocess.run(
        [*pip, "--dest", str(folder), _PACKAGE], capture_output=True, text=True, check=False, timeout=240
    )
    if result.returncode:
        pytest.skip(f"{_PACKAGE} cannot be fetched: {result.stderr[-300:]}")
    package = folder / "package"
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as archive:
        archive.extractall(package)
    start = package / "torchvision" / "__init__.py"
    start.write_text(_DECLARED + start.read_text())
    return package
