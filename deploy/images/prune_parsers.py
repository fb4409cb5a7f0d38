"""Deletes from an environment what parsers of vLLM never import of large packages, for the coordinator's image.

A module stays if a coordinator with any of the parsers loads it, or if a module that stays names it in an import,
wherever that stands: what a function imports late is there, too. Of other files those stay that were opened meanwhile.
Compiles the loaded modules, since only they are read at each start.
"""

import ast
import importlib
import py_compile
import sys
from collections.abc import Iterator
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import resolve_name
from itertools import accumulate
from pathlib import Path

from tokenwire.coordinator.parsing import light_imports

PRUNED = ("mistral_common", "openai", "pycountry", "transformers", "tvm_ffi", "vllm")
CLIENTS = ("openai._client", "openai.lib", "openai.resources")
"""What requests completions from servers: helpers name it, for callers that have such a client."""


def main() -> None:
    """Load all parsers, delete what they leave, and compile what they load."""
    opened: set[str] = set()
    sys.addaudithook(lambda event, arguments: (event == "open" and opened.add(str(arguments[0]))) or None)
    load_all_parsers()
    libraries = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    kept = opened | libraries | {str(path) for path in reachable().values()}
    for package in PRUNED:
        delete_others(_folder(package), kept)
    for path in {getattr(module, "__file__", None) or "" for module in sys.modules.values()}:
        if path.startswith(sys.prefix) and path.endswith(".py"):
            py_compile.compile(path)


def load_all_parsers() -> None:
    """Load a coordinator with each of the parsers that it offers."""
    light_imports.import_lightly()
    importlib.import_module("tokenwire.coordinator.server")
    module = importlib.import_module("tokenwire.coordinator.parsing.vllm_parsers")
    for manager, load in (
        (module.ToolParserManager, module.ToolParserManager.get_tool_parser),
        (module.ReasoningParserManager, module.ReasoningParserManager.get_reasoning_parser),
    ):
        for name in manager.list_registered():
            load(name)


def reachable() -> dict[str, Path]:
    """Return the files of modules that are loaded or that some of these import, by the modules' names."""
    found: dict[str, Path] = {}
    names = [name for name in (*sys.modules, "vllm.version") if name.partition(".")[0] in PRUNED]
    while names:
        name = names.pop()
        path = _source(name)
        if name in found or path is None or light_imports.is_stand_in(name) or _is_client(name):
            continue
        found[name] = path
        if name not in light_imports.LAZY:  # whose code does not run
            names += _imported(name, path)
    return found


def _is_client(module: str) -> bool:
    return module not in sys.modules and f"{module}.".startswith(tuple(f"{each}." for each in CLIENTS))


def _source(module: str) -> Path | None:
    package, _, rest = module.partition(".")
    path = _folder(package).joinpath(*rest.split(".")) if rest else _folder(package)
    return next((each for each in (path / "__init__.py", path.with_suffix(".py")) if each.is_file()), None)


@cache
def _folder(package: str) -> Path:
    """Return the folder of a package that is pruned."""
    return Path(str(PathFinder.find_spec(package).origin)).parent  # type: ignore[union-attr]


def _imported(name: str, path: Path) -> Iterator[str]:
    """Return the modules that a module may import, by any of its statements."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for statement in _statements(ast.parse(path.read_text())):
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                yield from _run_by(alias.name)
        elif isinstance(statement, ast.ImportFrom):
            module = resolve_name("." * statement.level + (statement.module or ""), package)
            for alias in statement.names:
                yield from _run_by(module, alias.name)


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            continue
        yield child
        yield from _statements(child)


def _run_by(module: str, name: str = "") -> Iterator[str]:
    """Return the modules that importing a module, or a name from it, may run."""
    if module.partition(".")[0] not in PRUNED:
        return
    yield from accumulate(module.split("."), "{}.{}".format)
    yield f"{module}.{name}"
    if exported := _exports(module).get(name):
        yield from _run_by(*exported)


@cache
def _exports(module: str) -> dict[str, tuple[str, str]]:
    path = _source(module)
    return light_imports.exports(module, path.read_text()) if path and path.name == "__init__.py" else {}


def delete_others(folder: Path, kept: set[str]) -> None:
    """Delete all files of a folder but these, and folders that have none left."""
    for path in sorted(folder.rglob("*"), reverse=True):  # what is in a folder comes before it
        if path.is_dir():
            if not any(path.iterdir()):
                path.rmdir()
        elif str(path) not in kept:
            path.unlink()


if __name__ == "__main__":
    main()
