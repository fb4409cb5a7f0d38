"""Modules that are imported when a test uses them: vLLM's take ten seconds of every process that only collects."""

import importlib
from typing import Any

import pytest

from tokenwire.process.gc_tuning import gc_disabled

_OURS = ("tokenwire", "tests")


class Lazily:
    """Stands for a module; a test that uses something of it is skipped where a package that it needs is missing."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):
            raise AttributeError(attribute)  # pytest looks for marks of its own at whatever a test module holds
        try:
            with gc_disabled():
                module = importlib.import_module(self._name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] in _OURS:
                raise
            pytest.skip(f"could not import {error.name}")
        return getattr(module, attribute)
