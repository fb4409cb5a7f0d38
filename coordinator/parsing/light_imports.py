"""Lets vLLM's parsers be imported without torch and without vLLM's engine, which they name and do not use.

Packages of which a parser needs one module, but whose `__init__` imports many, become lazy: a name that they export is
imported when it is first read. Modules of which a parser only mentions names, such as in annotations, become stand-ins;
NumPy and Pillow for vLLM and what reads tokenizers alone, since others in the process may use them. All other code is
vLLM's own, unchanged. The process cannot run an engine afterwards.
"""

import ast
import builtins
import dataclasses
import importlib
import importlib.abc
import importlib.machinery
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from importlib import metadata
from itertools import chain
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
        "transformers",
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
    "huggingface_hub._commit_api",
    "huggingface_hub._snapshot_download",
    "huggingface_hub.hf_api",
    "huggingface_hub.repocard",
    "huggingface_hub.repocard_data",
    "mistral_common.protocol.fim",
    "mistral_common.protocol.instruct.chunk",
    "mistral_common.protocol.instruct.messages",
    "mistral_common.protocol.instruct.request",
    "mistral_common.protocol.speech",
    "mistral_common.protocol.transcription",
    "mistral_common.tokens.tokenizers.audio",
    "mistral_common.tokens.tokenizers.image",
    "mistral_common.tokens.tokenizers.model_settings_builder",
    "openai.types.responses.response",
    "openai.types.responses.tool",
    "torch",
    "transformers.models",
    "vllm.config",
    "vllm.distributed",
    "vllm.entrypoints.mcp",
    "vllm.entrypoints.openai.responses.protocol",
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
_ANSWERS: dict[str, dict[str, Any]] = {
    "vllm.config.utils": {"replace": dataclasses.replace},
    "vllm.distributed.parallel_state": {"is_local_first_rank": lambda: True, "is_global_first_rank": lambda: True},
    "mistral_common.protocol.instruct.request": {
        "ModelSettings": type("ModelSettings", (), {"none": staticmethod(lambda: None)}),
    },
}
"""What stand-ins answer: a request's constraint and format are joined. vLLM asks which process of a group writes a line
of its log, and this one is alone. Mistral's base of tokenizers, of which parsers read the special tokens, has settings
as the default of an argument."""
_BINDINGS = {"xgrammar": "xgrammar.load_binding"}
"""What a lazy package imports at once: its shared library."""
_STARRED = {"transformers": {"AutoTokenizer": ("transformers.models.auto", "AutoTokenizer")}}
"""Names that a lazy package exports by `import *`."""
_ARRAYS = ("PIL", "cv2", "numpy")
"""Packages that are stand-ins for those of _USES_NO_ARRAYS alone."""
_USES_NO_ARRAYS = frozenset({"mistral_common", "transformers", "vllm"})


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
        text = source.read_text()
        self._exports = exports(name, text) | _STARRED.get(name, {})
        if version := re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE):
            self.__version__ = version[1]

    def __getattr__(self, name: str) -> Any:
        if name not in self._exports:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        module, exported = self._exports[name]
        value = getattr(importlib.import_module(module), exported)
        setattr(self, name, value)
        return value


def is_stand_in(module: str) -> bool:
    """Whether only names of a module are there."""
    return f"{module}.".startswith(_STAND_IN_PREFIXES)


def exports(package: str, source: str) -> dict[str, tuple[str, str]]:
    """Return the module and the name there of each name that an `__init__` imports from another module.

    Those that it imports for type checkers are what it exports in another lazy way.
    """
    found = {}
    body = ast.parse(source).body
    typed = [each.body for each in body if isinstance(each, ast.If) and ast.unparse(each.test) == "TYPE_CHECKING"]
    for statement in chain(body, *typed):
        if isinstance(statement, ast.ImportFrom) and statement.module:
            module = f"{package}.{statement.module}" if statement.level else statement.module
            found.update({alias.asname or alias.name: (module, alias.name) for alias in statement.names})
    return found


@cache
def _array_stand_in(name: str) -> ModuleType:
    return _StandIn(name)


def _import_without_arrays(
    name: str,
    globals: Mapping[str, object] | None = None,
    locals: Mapping[str, object] | None = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> ModuleType:
    package = name.partition(".")[0]
    if level or package not in _ARRAYS:
        return builtins.__import__(name, globals, locals, fromlist or (), level)
    return _array_stand_in(name if fromlist else package)


_BUILTINS_WITHOUT_ARRAYS = vars(builtins) | {"__import__": _import_without_arrays}


class _WithoutArrays(importlib.machinery.SourceFileLoader):
    """Runs a module whose imports of NumPy and Pillow give stand-ins."""

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__builtins__"] = _BUILTINS_WITHOUT_ARRAYS
        super().exec_module(module)


class LightImports(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds lazy packages and stand-ins before all other finders."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a lazy package or of a stand-in, None for other modules."""
        if is_stand_in(fullname):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        if fullname not in LAZY and fullname.partition(".")[0] not in _USES_NO_ARRAYS:
            return None
        real = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if real is None or real.origin is None:
            return None
        if fullname not in LAZY:
            if isinstance(real.loader, importlib.machinery.SourceFileLoader):
                real.loader = _WithoutArrays(fullname, real.origin)
            return real
        spec = importlib.machinery.ModuleSpec(fullname, self, origin=real.origin, is_package=True)
        spec.submodule_search_locations = real.submodule_search_locations
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Return a module that makes its names when they are read."""
        return _LazyPackage(spec.name, Path(spec.origin)) if spec.origin else _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Load the shared library of packages that have one, and give stand-ins what they answer."""
        vars(module).update(_ANSWERS.get(module.__name__, {}))
        if binding := _BINDINGS.get(module.__name__):
            with _without("torch", "numpy"):
                importlib.import_module(binding)
                importlib.import_module(f"{module.__name__}.base")


def import_lightly() -> None:
    """Make imports of vLLM light from now on, in this process. Does nothing if vLLM or torch is already imported."""
    if {"vllm", "torch"} & set(sys.modules):
        return
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # that there is no torch
    sys.meta_path.insert(0, LightImports())
    # What asks whether there is torch shall not take the stand-in for it.
    with _without("torch"), _distributions_read_late():
        utils = importlib.import_module("transformers.utils")
        utils.is_torch_available()


class _LateDistributions(Mapping[str, list[str]]):
    """The distributions of each package, for which the files of all are read when one is first looked up."""

    @cached_property
    def _read(self) -> Mapping[str, list[str]]:
        return metadata.packages_distributions()

    def __getitem__(self, package: str) -> list[str]:
        return self._read[package]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read)

    def __len__(self) -> int:
        return len(self._read)


@contextmanager
def _distributions_read_late() -> Iterator[None]:
    """Let what is imported in the block keep the distributions without reading them: transformers seldom asks."""
    read = metadata.packages_distributions
    metadata.packages_distributions = _LateDistributions
    try:
        yield
    finally:
        metadata.packages_distributions = read


@contextmanager
def _without(*packages: str) -> Iterator[None]:
    """Let imports of packages fail, as if they were not installed."""
    before = {name: sys.modules.get(name) for name in packages}
    sys.modules.update(dict.fromkeys(packages))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name, module in before.items():
            del sys.modules[name]
            if module is not None:
                sys.modules[name] = module
