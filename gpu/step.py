"""What a step is, and which there are."""

import importlib
from typing import Any, Protocol, cast

from gpu.kit import Kit

NAMES = (
    "job",
    "resume",
    "parity",
    "load",
    "overhead",
    "heavy_outputs",
    "weights",
    "sleep",
    "kv_transfer",
)


class GpuStep(Protocol):
    """A module of gpu/steps; the first line of its docstring is shown by --help."""

    NAME: str
    LIMIT_S: int
    """How long it may take on CUDA, its servers' start included."""

    @staticmethod
    def run(kit: Kit) -> dict[str, Any]:
        """Return results as JSON, with `parts` where it has some. Raises Skipped if it cannot run here."""
        ...


class Skipped(Exception):
    """This step, or a part of it, cannot run on this machine: the message says why."""


def load_step(name: str) -> GpuStep:
    """Import a step."""
    return cast(GpuStep, importlib.import_module(f"gpu.steps.{name}"))


def describe_step(name: str) -> str:
    """Return the first line of a step's docstring."""
    return (load_step(name).__doc__ or "").partition("\n")[0]
