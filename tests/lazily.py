"""Modules that are imported when a test uses them: vLLM's take ten seconds of every process that only collects."""

from typing import Any

import pytest


class Lazily:
    """Stands for a module; a test that uses something of it is skipped where it cannot be imported."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):
            raise AttributeError(attribute)  # pytest looks for marks of its own at whatever a test module holds
        return getattr(pytest.importorskip(self._name), attribute)
