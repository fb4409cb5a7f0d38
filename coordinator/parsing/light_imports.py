"""Lets vLLM's parsers be imported without torch and without vLLM's engine, which they name and do not use.

Packages of which a parser needs one module, but whose `__init__` imports many, become lazy: a name that they export is
imported when it is first read. Modules of which a parser only mentions names, such as in annotations, become stand-ins.
All other code is vLLM's own, unchanged. The process cannot run an engine afterwards.
"""

import ast
import importlib
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

LAZY = frozenset(
    {
        "openai",
        "openai.types",
        "openai.types.chat",
        "openai.types.responses",
        "openai.types.shared",
        "vllm",
        "vllm.entrypoints.serve",
        "vllm.inputs",
        "vllm.renderers",
        "vllm.tokenizers",
        "vllm.v1.structured_output",
        "xgrammar",
    }
)
"""Packages that import what they export when it is read."""
STAND_INS = (
    "torch",
    "vllm.config",
    "vllm.distributed",
    "vllm.model_executor",
    "vllm.multimodal",
    "vllm.platforms",
    "vllm.transformers_utils",
    "vllm.utils.torch_utils",
    "vllm.v1.utils",
    "xgrammar.matcher",
)
"""Modules, with all that is in them, of which parsers mention names alone."""
_STAND_IN_PREFIXES = tuple(f"{each}." for each in STAND_INS)
_RANKS = {
    "vllm.distributed.parallel_state": {"is_local_first_rank": lambda: True, "is_global_first_rank": lambda: True},
}
"""What stand-ins answer: vLLM asks which process of a group writes a line of its log, and this one is alone."""
_BINDINGS = {"xgrammar": "xgrammar.load_binding"}
"""What a lazy package imports at once: its shared library."""


class StandInUsed(RuntimeError):
    """A parser has called something of which only the name is there."""


class _Mentioned(type):
    """A class of which only the name is there: it can be mentioned, also with names inside, and no instance made."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _named(f"{cls.__module__}.{cls.__qualname__}", name)

    def __call__(cls, *_: Any, **__: Any) -> Any:
        raise StandInUsed(
            f"{cls.__module__}.{cls.__qualname__} is not loaded beside parsers; --load-whole-vllm loads all of vLLM"
        )


def _named(module: str, name: str) -> _Mentioned:
    return _Mentioned(name, (), {"__module__": module})


class _StandIn(ModuleType):
    """A module of names."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = _named(self.__name__, name)
        setattr(self, name, value)
        return value


class _LazyPackage(ModuleType):
    """A package that has not run its `__init__`."""

    def __init__(self, name: str, source: Path) -> None:
        super().__init__(name)
        self._exports = exports(name, source.read_text())

    def __getattr__(self, name: str) -> Any:
        if name not in self._exports:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        module, exported = self._exports[name]
        value = getattr(importlib.import_module(module), exported)
        setattr(self, name, value)
        return value


def exports(package: str, source: str) -> dict[str, tuple[str, str]]:
    """Return the module and the name there of each name that an `__init__` imports from another module."""
    found = {}
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.ImportFrom) and statement.module:
            module = f"{package}.{statement.module}" if statement.level else statement.module
            found.update({alias.asname or alias.name: (module, alias.name) for alias in statement.names})
    return found


class LightImports(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds lazy packages and stand-ins before all other finders."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a lazy package or of a stand-in, None for other modules."""
        if f"{fullname}.".startswith(_STAND_IN_PREFIXES):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        real = importlib.machinery.PathFinder.find_spec(fullname, path, target) if fullname in LAZY else None
        if real is None or real.origin is None:
            return None
        spec = importlib.machinery.ModuleSpec(fullname, self, origin=real.origin, is_package=True)
        spec.submodule_search_locations = real.submodule_search_locations
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Return a module that makes its names when they are read."""
        return _LazyPackage(spec.name, Path(spec.origin)) if spec.origin else _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Load the shared library of packages that have one, and give stand-ins what they answer."""
        vars(module).update(_RANKS.get(module.__name__, {}))
        if binding := _BINDINGS.get(module.__name__):
            with _without_torch():
                importlib.import_module(binding)
                importlib.import_module(f"{module.__name__}.base")


def import_lightly() -> None:
    """Make imports of vLLM light from now on, in this process. Does nothing if vLLM or torch is already imported."""
    if {"vllm", "torch"} & set(sys.modules):
        return
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # that there is no torch
    with _without_torch():  # what asks whether there is torch shall not take the stand-in for it
        utils = importlib.import_module("transformers.utils")
        utils.is_torch_available()
    sys.meta_path.insert(0, LightImports())


@contextmanager
def _without_torch() -> Iterator[None]:
    """Let imports of torch fail, as if it were not installed."""
    before = sys.modules.get("torch")
    sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["torch"]
        if before is not None:
            sys.modules["torch"] = before
