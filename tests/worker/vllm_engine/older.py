"""Skips what the vLLM under test does not have yet: the tests run with each supported minor."""

from dataclasses import fields
from importlib.metadata import version
from typing import Any

import pytest

from tests.lazily import Lazily

arg_utils = Lazily("vllm.engine.arg_utils")
vllm = Lazily("vllm")


def has_engine_option(name: str) -> bool:
    """Return whether AsyncEngineArgs has a field of this name."""
    return any(field.name == name for field in fields(arg_utils.AsyncEngineArgs))


def skip_without_parameters(*names: str) -> None:
    """Skip a test of sampling parameters that this vLLM lacks."""
    missing = set(names) - set(vllm.SamplingParams.__struct_fields__)
    if missing:
        pytest.skip(f"this vLLM has no {', '.join(sorted(missing))}")


def skip_without_attribute(owner: Any, name: str) -> None:
    """Skip a test of a part of vLLM that this version lacks."""
    try:
        getattr(owner, name)
    except AttributeError:
        pytest.skip(f"this vLLM has no {name}")


def skip_if_clamped(expression: str) -> None:
    """Skip a test of a negated class of all characters with xgrammar 0.2.7, for which one ends at the last of ASCII."""
    if "[^" in expression and version("xgrammar") == "0.2.7":
        pytest.skip("xgrammar 0.2.7, which vLLM 0.31 wants, negates ASCII alone")
