"""The Python sources of a vLLM, read without importing them: which names modules have, and classes with what bases."""

import ast
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ANY = "**"
"""Among parameters: it takes any keyword."""
_LAZY_HOPS = 6


@dataclass(frozen=True, slots=True, order=True)
class VllmClass:
    """A class of vLLM, by a module that has it."""

    module: str
    name: str


Members = dict[str, tuple[str, ...]]
"""Attributes and methods by name, with the parameters of the latter in order."""


class Sources:
    """The Python sources of a vLLM, in a folder or a wheel."""

    def __init__(self, place: Path) -> None:
        """`place` is the folder `vllm`, or a wheel."""
        self.place = place
        self._wheel = zipfile.ZipFile(place) if place.suffix == ".whl" else None
        self._names = set(self._wheel.namelist()) if self._wheel else set()
        self._trees: dict[str, ast.Module | None] = {}
        self.members = cache(self._members)
        self.bound = cache(self._bound)

    def text(self, path: str) -> str | None:
        """Return a file's text, None without such a file."""
        if self._wheel is not None:
            name = f"vllm/{path}"
            return self._wheel.read(name).decode() if name in self._names else None
        file = self.place / path
        return file.read_text() if file.exists() else None

    def module(self, name: str) -> ast.Module | None:
        """Return the tree of a module such as vllm.inputs, None without it."""
        path = "/".join(name.split(".")[1:])
        return self._tree(f"{path}.py" if path else "__init__.py") or self._tree(f"{path}/__init__.py")

    def _tree(self, path: str) -> ast.Module | None:
        if path not in self._trees:
            text = self.text(path)
            self._trees[path] = None if text is None else ast.parse(text)
        return self._trees[path]

    def _bound(self, module: str, name: str) -> bool:
        """Return whether a module has a name: its own, imported, listed for a lazy import, or a module in it."""
        tree = self.module(module)
        if tree is None:
            return False
        if self.module(f"{module}.{name}") is not None:
            return True
        return any(_binds(node, name) for node in ast.walk(tree))

    def find(self, module: str, name: str) -> tuple[str, ast.stmt] | None:
        """Return the definition of a class or function that a module has, and the module that defines it."""
        for _ in range(_LAZY_HOPS):
            if (tree := self.module(module)) is None:
                return None
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
                    return module, node
            if (origin := self._origin(module, tree, name)) is None:
                return None
            module, name = origin
        return None

    def _origin(self, module: str, tree: ast.Module, name: str) -> tuple[str, str] | None:
        """Return where a module imports a name from, at once or lazily, and its name there."""
        for node in ast.walk(tree):
            match node:
                case ast.ImportFrom(module=source, names=names, level=level):
                    for each in names:
                        if (each.asname or each.name) == name:
                            return self._absolute(module, source or "", level), each.name
                case ast.Constant(value=str(text)) if text.startswith(".") and text.endswith(f":{name}"):
                    return f"{module}{text.partition(':')[0]}", name
        return None

    def _absolute(self, module: str, source: str, level: int) -> str:
        if not level:
            return source
        is_package = self._tree("/".join([*module.split(".")[1:], "__init__.py"])) is not None
        parts = module.split(".")
        kept = parts[: len(parts) - level + is_package]
        return ".".join([*kept, *([source] if source else [])])

    def _members(self, owner: VllmClass) -> Members:
        """Return a class's members, those of its bases in vLLM included; none without such a class."""
        found: Members = {}
        for one in self._lineage(owner):
            found = {**dict(_class_members(one)), **found}
        return found

    def fields(self, owner: VllmClass) -> tuple[str, ...]:
        """Return the fields of a class that declares some, those of its bases first."""
        lineage = list(self._lineage(owner))
        declared = [node.target for one in reversed(lineage) for node in one.body if isinstance(node, ast.AnnAssign)]
        return tuple(target.id for target in declared if isinstance(target, ast.Name))

    def _lineage(self, owner: VllmClass) -> Iterator[ast.ClassDef]:
        waiting = [owner]
        while waiting:
            each = waiting.pop()
            definition = self.find(each.module, each.name)
            if definition is None or not isinstance(one := definition[1], ast.ClassDef):
                continue
            yield one
            waiting += [VllmClass(definition[0], base.id) for base in one.bases if isinstance(base, ast.Name)]

    def parameters(self, module: str, name: str) -> tuple[str, ...] | None:
        """Return what a function takes, or a class to make an object; None without it."""
        definition = self.find(module, name)
        if definition is None:
            return None
        module, node = definition
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return parameters_of(node, skipped=0)
        members = self.members(VllmClass(module, name))
        return members.get("__init__", (*members,))


def parameters_of(function: ast.FunctionDef | ast.AsyncFunctionDef, skipped: int = 1) -> tuple[str, ...]:
    """Return the names of a function's parameters, without the first ones."""
    arguments = function.args
    positional = [each.arg for each in [*arguments.posonlyargs, *arguments.args]][skipped:]
    return (*positional, *(each.arg for each in arguments.kwonlyargs), *([ANY] if arguments.kwarg else []))


def stored_on_self(function: ast.AST) -> frozenset[str]:
    """Return the attributes that a method sets."""
    return frozenset(
        node.attr
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )


def _class_members(one: ast.ClassDef) -> Iterator[tuple[str, tuple[str, ...]]]:
    for node in ast.walk(one):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                is_static = any(
                    isinstance(each, ast.Name) and each.id == "staticmethod" for each in node.decorator_list
                )
                yield node.name, parameters_of(node, skipped=0 if is_static else 1)
            case ast.Attribute(value=ast.Name(id="self"), ctx=ast.Store()):
                yield node.attr, ()
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                yield name, ()


def _binds(node: ast.AST, name: str) -> bool:
    match node:
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            return node.name == name
        case ast.alias():
            return (node.asname or node.name) == name
        case ast.Name(ctx=ast.Store()):
            return node.id == name
        case ast.Constant():
            return bool(node.value == name)
    return False
