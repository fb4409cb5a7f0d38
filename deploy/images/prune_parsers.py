"""Deletes from an environment what parsers of vLLM never import of large packages, for the coordinator's image.

A module stays if a coordinator loads it, or any of the parsers when it is made and fed text, or if a module that stays
names it in an import, wherever that stands: what a function imports late is there, too. Of other files those stay that
were opened meanwhile. Compiles the loaded modules, since the image's file system is read-only. Fails if a parser lacks
something that is not installed, or does anything else afterwards, in a new process.
"""

import ast
import importlib
import json
import logging
import py_compile
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import resolve_name
from itertools import accumulate
from pathlib import Path
from typing import Any

from tokenwire.coordinator.parsing import light_imports

PRUNED = ("mistral_common", "openai", "transformers", "tvm_ffi", "vllm")
CLIENTS = ("openai._client", "openai.lib", "openai.resources")
"""What requests completions from servers: helpers name it, for callers that have such a client."""
IMPORTERS = ("LazyLoader", "import_module")
"""Functions that import a module by its name."""
USE = "--use"
"""The argument with which the script only prints what parsers do."""
_LACKS = re.compile(r"(?:\b(?:ImportError|ModuleNotFoundError|FileNotFoundError|StandInUsed):|No module named).{0,200}")
OPTIONAL = ("cohere_melody",)
"""What parsers (cohere_command3 and 4) ask for and vLLM does not require: whoever uses them installs it."""
_DRAWS = 2
_ROOT = Path(__file__).parents[2]


def main() -> None:
    """Use all parsers, delete what they leave, compile what they load, and use what is left."""
    opened: set[str] = set()
    sys.addaudithook(lambda event, arguments: (event == "open" and opened.add(str(arguments[0]))) or None)
    before = use_all_parsers()
    libraries = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    kept = opened | libraries | {str(path) for path in reachable().values()}
    for package in PRUNED:
        delete_others(_folder(package), kept)
    for path in {getattr(module, "__file__", None) or "" for module in sys.modules.values()}:
        if path.startswith(sys.prefix) and path.endswith(".py"):
            py_compile.compile(path)
    left = subprocess.run([sys.executable, __file__, USE], check=True, stdout=subprocess.PIPE, text=True).stdout
    check(before, json.loads(left.splitlines()[-1]))


def use_all_parsers() -> dict[str, Any]:
    """Load a coordinator and each of the parsers that it offers, and return what these make of outputs of models."""
    logging.disable()  # a parser warns of most of the outputs, which are not of its model
    light_imports.import_lightly()
    importlib.import_module("tokenwire.coordinator.server")
    sys.path.insert(0, str(_ROOT))  # for the tests; tokenwire is loaded already, from where it is installed
    results: dict[str, Any] = importlib.import_module("tests.coordinator.parsing.every_parser").parser_results(_DRAWS)
    return results


def check(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Exit with what parsers lacked in the whole environment already, or do differently in the pruned one."""
    faults = [f"{name} lacks something: {lacks}" for name, result in before.items() if (lacks := _lacks(result))]
    for name, result in before.items():
        if after.get(name) != result:
            faults.append(f"{name} does something else once pruned: {_lacks(after.get(name)) or 'see its results'}")
    if faults or not before:
        sys.exit("\n".join(["the environment with vLLM's parsers cannot be pruned:", *faults]))
    print(f"{len(before)} parsers do in the pruned environment what they did before")


def _lacks(result: object) -> str | None:
    found = _LACKS.search(str(result))
    return None if found is None or any(package in found[0] for package in OPTIONAL) else found[0]


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
        if isinstance(statement, ast.Call):
            for named in _names_given(statement):
                yield from _run_by(named)
        elif isinstance(statement, ast.Import):
            for alias in statement.names:
                yield from _run_by(alias.name)
        elif isinstance(statement, ast.ImportFrom):
            module = resolve_name("." * statement.level + (statement.module or ""), package)
            for alias in statement.names:
                yield from _run_by(module, alias.name)


def _names_given(call: ast.Call) -> Iterator[str]:
    """Return the strings that a function gets that imports modules by their names."""
    if ast.unparse(call.func).rpartition(".")[2] in IMPORTERS:
        given = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        yield from (each for each in given if not each.startswith("."))


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
    if sys.argv[1:] == [USE]:
        print(json.dumps(use_all_parsers()))
    else:
        main()
