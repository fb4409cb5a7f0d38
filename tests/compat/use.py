"""What the worker's adapters use of vLLM, read from their own sources: names, attributes, arguments, orders."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.compat.environments import ROOT
from tests.compat.objects import ARGUMENTS, OBJECTS, STAND_INS
from tests.compat.sources import VllmClass, stored_on_self

ADAPTERS = ROOT / "worker" / "vllm_engine"


@dataclass(frozen=True, slots=True, order=True)
class Attribute:
    """An attribute of a class, or of a module if the class has no name."""

    owner: VllmClass
    name: str


@dataclass(frozen=True, slots=True, order=True)
class Argument:
    """A named argument of a function or class of a module, or of a method of a class."""

    owner: VllmClass
    method: str
    """Empty: of what `owner` itself names."""
    name: str


@dataclass(frozen=True)
class Used:
    """What the adapters use of vLLM."""

    attributes: frozenset[Attribute] = frozenset()
    """Names that they import, too."""
    arguments: frozenset[Argument] = frozenset()
    leading: frozenset[tuple[VllmClass, int]] = frozenset()
    """Of how many fields they take the first ones by their order."""
    replaced: frozenset[tuple[VllmClass, str, frozenset[str]]] = frozenset()
    """Methods that subclasses replace, and the attributes that they set instead."""
    stand_ins: frozenset[tuple[VllmClass, str, int, frozenset[str]]] = frozenset()
    """A method, the place of a parameter for which the adapters pass an object of their own, and what that has."""
    asked: frozenset[str] = frozenset()
    """Names that are looked for before they are used, or with a default."""


@cache
def used(folder: Path = ADAPTERS) -> Used:
    """Read the adapters."""
    found = [AdapterFile(file).used() for file in sorted(folder.glob("*.py"))]
    return Used(
        frozenset().union(*(each.attributes for each in found)),
        frozenset().union(*(each.arguments for each in found)),
        frozenset().union(*(each.leading for each in found)),
        frozenset().union(*(each.replaced for each in found)),
        frozenset().union(*(each.stand_ins for each in found)),
        frozenset().union(*(each.asked for each in found)),
    )


class AdapterFile:
    """Reads one file of the adapters."""

    def __init__(self, file: Path) -> None:
        self._name = file.stem
        self.tree = ast.parse(file.read_text())
        self.imports = dict(_imports(self.tree))
        """What is vLLM's, by its name here."""
        self._functions = {
            inner: function.name
            for function in ast.walk(self.tree)
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
            for inner in ast.walk(function)
        }

    def used(self) -> Used:
        """Return what it uses."""
        nodes = list(ast.walk(self.tree))
        attributes = {_attribute(each) for each in self.imports.values() if each != _PACKAGE}
        attributes |= {each for node in nodes for each in self._attributes(node)}
        return Used(
            frozenset(each for each in attributes if not each.name.startswith("__")),
            frozenset(each for node in nodes for each in self._arguments(node)),
            frozenset(each for node in nodes for each in self._leading(node)),
            frozenset(each for node in nodes for each in self._replaced(node)),
            frozenset(each for node in nodes for each in self._stand_ins(node)),
            frozenset(each for node in nodes for each in _asked(node)),
        )

    def owner_of(self, node: ast.expr) -> VllmClass | None:
        """Return the class of an object, or the class or module that a name stands for; None if it is not vLLM's."""
        if isinstance(node, ast.Name) and node.id in self.imports:
            return OBJECTS.get(node.id, self.imports[node.id])
        if isinstance(node, ast.Attribute) and (package := self.owner_of(node.value)) and not package.name:
            is_module = node.attr in _MODULES.get(package.module, ())
            return VllmClass(f"{package.module}.{node.attr}", "") if is_module else None
        return next((OBJECTS[key] for key in self.keys_of(node) if key in OBJECTS), None)

    def names(self) -> set[str]:
        """Return by which names a table can have the objects of this file."""
        return {key for node in ast.walk(self.tree) if isinstance(node, ast.expr) for key in self.keys_of(node)}

    def keys_of(self, node: ast.expr) -> tuple[str, ...]:
        """Return by which names a table can have an object."""
        name = _spoken(node)
        return f"{self._functions.get(node, '')}.{name}", f"{self._name}.{name}", name

    def _attributes(self, node: ast.AST) -> Iterator[Attribute]:
        match node:
            case ast.Attribute(value=owner, attr=name):
                if (found := self.owner_of(owner)) is not None:
                    yield Attribute(found, name)
            case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[owner, ast.Constant(value=str(name)), *_]):
                if (found := self.owner_of(owner)) is not None:
                    yield Attribute(found, name)
            case ast.Call(func=ast.Attribute(attr="collective_rpc"), args=[ast.Constant(value=str(name)), *_]):
                if not name.startswith("tokenwire_"):
                    yield Attribute(OBJECTS["worker"], name)

    def _arguments(self, node: ast.AST) -> Iterator[Argument]:
        match node:
            case ast.Call(func=function, keywords=keywords):
                if (called := self._callable(function)) is not None:
                    yield from (Argument(*called, each.arg) for each in keywords if each.arg)
            case (
                ast.Assign(targets=[target], value=ast.Dict(keys=keys))
                | ast.AnnAssign(target=target, value=ast.Dict(keys=keys))
            ):
                yield from self._collected(target, keys)
            case ast.Assign(targets=[ast.Subscript(value=target, slice=key)]):
                yield from self._collected(target, [key])

    def _callable(self, function: ast.expr) -> tuple[VllmClass, str] | None:
        if isinstance(function, ast.Name):
            found = self.imports.get(function.id)
            return None if found is None else (found, "")
        if isinstance(function, ast.Attribute) and (owner := self.owner_of(function.value)) is not None:
            if not owner.name:
                return VllmClass(owner.module, function.attr), ""
            return owner, function.attr
        return None

    def _collected(self, target: ast.expr, keys: list[ast.expr | None] | list[ast.expr]) -> Iterator[Argument]:
        """Yield the arguments that a dictionary collects for a call."""
        for key in self.keys_of(target):
            if key in ARGUMENTS:
                names = [each.value for each in keys if isinstance(each, ast.Constant)]
                yield from (Argument(*ARGUMENTS[key], str(each)) for each in names)
                return

    def _leading(self, node: ast.AST) -> Iterator[tuple[VllmClass, int]]:
        match node:
            case ast.Subscript(value=owner, slice=ast.Slice(lower=None, upper=ast.Constant(value=int(count)))):
                if (found := self.owner_of(owner)) is not None:
                    yield found, count

    def _replaced(self, node: ast.AST) -> Iterator[tuple[VllmClass, str, frozenset[str]]]:
        for base in node.bases if isinstance(node, ast.ClassDef) else ():
            if isinstance(base, ast.Name) and (found := self.imports.get(base.id)) is not None:
                assert isinstance(node, ast.ClassDef)
                methods = (each for each in node.body if isinstance(each, ast.FunctionDef))
                yield from ((found, each.name, stored_on_self(each)) for each in methods)

    def _stand_ins(self, node: ast.AST) -> Iterator[tuple[VllmClass, str, int, frozenset[str]]]:
        if isinstance(node, ast.ClassDef) and (key := f"{self._name}.{node.name}") in STAND_INS:
            targets = (each.target for each in node.body if isinstance(each, ast.AnnAssign))
            yield (*STAND_INS[key], frozenset(each.id for each in targets if isinstance(each, ast.Name)))


def _imports(tree: ast.Module) -> Iterator[tuple[str, VllmClass]]:
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if module.split(".")[0] == "vllm":
                for each in names:
                    is_module = each.name in _MODULES.get(module, ())
                    named = VllmClass(f"{module}.{each.name}", "") if is_module else VllmClass(module, each.name)
                    yield each.asname or each.name, named
            case ast.Import(names=names):
                for each in names:
                    if each.name.split(".")[0] == "vllm":
                        yield "vllm", _PACKAGE


_PACKAGE = VllmClass("vllm", "")
_MODULES = {"vllm": ("envs", "exceptions")}
"""What is imported as a module."""


def _attribute(imported: VllmClass) -> Attribute:
    if imported.name:
        return Attribute(VllmClass(imported.module, ""), imported.name)
    module, _, name = imported.module.rpartition(".")
    return Attribute(VllmClass(module, ""), name)


def _spoken(node: ast.expr) -> str:
    """Return how an expression is named: the last name of it, with () for a call and [] for an item."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=function):
            return f"{_spoken(function)}()"
        case ast.Subscript(value=value):
            return f"{_spoken(value)}[]"
    return ""


def _asked(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[_, ast.Constant(value=str(name)), *_]):
            yield name
        case ast.Compare(left=ast.Constant(value=str(name)), ops=[ast.In() | ast.NotIn()]):
            yield name
