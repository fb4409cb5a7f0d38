"""`python -m tests.compat.internals [VERSION]`: which of vLLM's internals the worker uses, and which are not there.

Only sources are read: without a version those that are installed here, else those of the wheel of that version, which
is fetched without what it depends on. So a version can be looked at that this machine cannot run, the day it appears.

What is used is read from the worker's own sources: all that they import from vLLM, and the attributes of a few of
vLLM's objects, known by the names that these have there.
"""

import argparse
import ast
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.compat.environments import ENVIRONMENTS, ROOT

ADAPTERS = ROOT / "worker" / "vllm_engine"
_ASYNC_LLM = ("v1/engine/async_llm.py", "AsyncLLM")
OBJECTS = {
    "llm": _ASYNC_LLM,
    "_llm": _ASYNC_LLM,
    "_core": ("v1/engine/core_client.py", "AsyncMPClient"),
    "_processor": ("v1/engine/input_processor.py", "InputProcessor"),
    "vllm_config": ("config/vllm.py", "VllmConfig"),
    "model_config": ("config/model.py", "ModelConfig"),
    "scheduler_config": ("config/scheduler.py", "SchedulerConfig"),
    "parallel_config": ("config/parallel.py", "ParallelConfig"),
    "cache_config": ("config/cache.py", "CacheConfig"),
}
"""Whose attributes are looked up, by the name of a variable or attribute in the adapters."""
WITH_PARAMETER = {"prompt_token_id_logprobs"}
"""What is read only after a parameter that a vLLM without it does not have."""
STEP_OBJECTS = {
    "outputs": ("v1/engine/__init__.py", "EngineCoreOutputs"),
    "output": ("v1/engine/__init__.py", "EngineCoreOutput"),
    "stats": ("v1/metrics/stats.py", "SchedulerStats"),
}
"""The same in core_driver.py alone."""


@dataclass
class Moved:
    """What the adapters use and a vLLM lacks, as `module: name`."""

    missing: list[str] = field(default_factory=list)
    handled: list[str] = field(default_factory=list)
    """Missing, but the adapters ask before they use it."""
    changed: list[str] = field(default_factory=list)
    """There, with other parameters than in the vLLM that is installed here."""


class Sources:
    """The Python sources of a vLLM, in a folder or a wheel."""

    def __init__(self, place: Path) -> None:
        """`place` is the folder `vllm`, or a wheel."""
        self._place = place
        self._wheel = zipfile.ZipFile(place) if place.suffix == ".whl" else None
        self._names = set(self._wheel.namelist()) if self._wheel else set()
        self._trees: dict[str, ast.Module | None] = {}

    def tree(self, path: str) -> ast.Module | None:
        """Return a file's syntax tree, None without such a file."""
        if path not in self._trees:
            text = self._text(path)
            self._trees[path] = None if text is None else ast.parse(text)
        return self._trees[path]

    def _text(self, path: str) -> str | None:
        if self._wheel is not None:
            name = f"vllm/{path}"
            return self._wheel.read(name).decode() if name in self._names else None
        file = self._place / path
        return file.read_text() if file.exists() else None

    def module(self, name: str) -> ast.Module | None:
        """Return the tree of a module such as vllm.inputs, None without it."""
        path = "/".join(name.split(".")[1:])
        return self.tree(f"{path}.py") or self.tree(f"{path}/__init__.py" if path else "__init__.py")

    def members(self, path: str, name: str) -> dict[str, str]:
        """Return a class's attributes and methods, with the parameters of the latter; those of bases in vLLM, too."""
        tree = self.tree(path)
        classes = {each.name: each for each in ast.walk(tree) if isinstance(each, ast.ClassDef)} if tree else {}
        found: dict[str, str] = {}
        waiting = [name]
        while waiting:
            if (one := classes.get(waiting.pop())) is not None:
                found = {**dict(_members(one)), **found}
                waiting += [base.id for base in one.bases if isinstance(base, ast.Name)]
        return found


def _members(one: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for node in ast.walk(one):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name, ", ".join(each.arg for each in [*node.args.posonlyargs, *node.args.args][1:])
            case ast.Attribute(value=ast.Name(id="self"), ctx=ast.Store()):
                yield node.attr, ""
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name, ""


@dataclass(frozen=True)
class Used:
    """What the adapters use of vLLM."""

    imports: frozenset[tuple[str, str]]
    """Module and name."""
    attributes: frozenset[tuple[str, str, str]]
    """File and class in vLLM, and the attribute."""
    asked: frozenset[str]
    """Names of attributes that are looked for before they are used, or with a default."""


@cache
def used() -> Used:
    """Read the adapters."""
    imports, attributes, asked = set(), set(), set()
    for file in sorted(ADAPTERS.glob("*.py")):
        objects = {**OBJECTS, **(STEP_OBJECTS if file.name == "core_driver.py" else {})}
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.ImportFrom(module=str(module)) if module.split(".")[0] == "vllm":
                    imports |= {(module, each.name) for each in node.names}
                case ast.Attribute(value=ast.Name(id=name) | ast.Attribute(attr=name)) if name in objects:
                    attributes.add((*objects[name], node.attr))
                case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[of, ast.Constant(value=str(name)), *_]):
                    asked.add(name)
                    owner = getattr(of, "attr", getattr(of, "id", ""))
                    attributes |= {(*objects[owner], name)} if owner in objects else set()
    return Used(frozenset(imports), frozenset(attributes), frozenset(asked))


def moved(sources: Sources, reference: Sources | None = None, use: Used | None = None) -> Moved:
    """Compare a vLLM with what the adapters use, and the parameters of methods with those of a reference."""
    found, use = Moved(), use or used()
    for module, name in sorted(use.imports):
        if not _is_bound(sources, module, name):
            found.missing.append(f"{module}: {name}")
    for path, owner, name in sorted(use.attributes):
        members = sources.members(path, owner)
        there = {} if reference is None else reference.members(path, owner)
        if name not in members:
            # What the reference lacks, too, belongs to no class: an attribute that vLLM sets from outside.
            if name in use.asked | WITH_PARAMETER:
                found.handled.append(f"{owner}: {name}")
            elif reference is None or name in there:
                found.missing.append(f"{owner}: {name}")
        elif members[name] != there.get(name, members[name]):
            found.changed.append(f"{owner}: {name}({_change(members[name], there[name])})")
    return found


def _change(now: str, reference: str) -> str:
    """Return the parameters that came, with +, and those that are gone, with -."""
    here, there = now.split(", "), reference.split(", ")
    more = [f"+{each}" for each in here if each and each not in there]
    return ", ".join(more + [f"-{each}" for each in there if each and each not in here]) or "another order"


def _is_bound(sources: Sources, module: str, name: str) -> bool:
    """Return whether a module has a name: its own, imported, listed for a lazy import, or a module in it."""
    tree = sources.module(module)
    if tree is None:
        return False
    if sources.module(f"{module}.{name}") is not None:
        return True
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef() if node.name == name:
                return True
            case ast.alias() if (node.asname or node.name) == name:
                return True
            case ast.Name(ctx=ast.Store()) if node.id == name:
                return True
            case ast.Constant() if node.value == name:
                return True
    return False


def installed() -> Sources:
    """Return the sources that are installed here."""
    spec = find_spec("vllm")
    assert spec is not None, "no vLLM is installed"
    assert spec.origin is not None
    return Sources(Path(spec.origin).parent)


def fetched(version: str, folder: Path = ENVIRONMENTS / "wheels") -> tuple[str, Sources]:
    """Fetch the wheel of a version such as 0.33, by itself; return its exact version and its sources."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = f"vllm=={version}" if version.count(".") > 1 else f"vllm=={version}.*"
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in (28, 31, 35)]
    if not (wheels := sorted(folder.glob(f"vllm-{version}*.whl"))):
        subprocess.run([*download, *platforms, "--dest", str(folder), wanted], check=True, timeout=900)
        wheels = sorted(folder.glob(f"vllm-{version}*.whl"))
    return wheels[-1].name.split("-")[1], Sources(wheels[-1])


def main() -> int:
    """Print what moved, as JSON; return 1 if something is missing."""
    parser = argparse.ArgumentParser(prog="python -m tests.compat.internals", description=__doc__)
    parser.add_argument("version", nargs="?", help="such as 0.33 or 0.33.0; default: the one that is installed")
    version: str | None = parser.parse_args().version
    exact, sources = fetched(version) if version else ("installed", installed())
    found: dict[str, Any] = vars(moved(sources, installed()))
    print(json.dumps({"version": exact, **found}, indent=1))
    return 1 if found["missing"] else 0


if __name__ == "__main__":
    sys.exit(main())
