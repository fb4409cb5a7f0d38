"""One name means one thing: classes, type aliases and functions of the project have names of their own."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

from tests.test_mirror import ROOT, modules

AS_IN_VLLM = {"ChatCompletionRequest", "DeltaToolCall", "SamplingParams", "StructuredOutputsParams"}
"""Our models of the vLLM classes of these names, with the fields that clients know from there."""


ENTRY_POINTS = {"main", "command"}
"""Functions that every program or subcommand has, under its module's name."""


def tree_of(path: str) -> ast.Module:
    """Parse a module."""
    return ast.parse((ROOT / path).read_text())


def types_of(module: ast.Module) -> Iterator[str]:
    """Yield the names of classes, type variables and type aliases; constants are in capitals."""
    for node in ast.walk(module):
        if isinstance(node, ast.ClassDef):
            yield node.name
    for statement in module.body:
        match statement:
            case ast.Assign(targets=[ast.Name(name)]) | ast.AnnAssign(target=ast.Name(name)):
                if re.match("_?[A-Z][a-z]", name):
                    yield name


def test_no_two_types_share_a_name() -> None:
    """So a type can be searched for and spoken of by its name alone, in either half."""
    places = defaultdict(list)
    for path in modules():
        for name in types_of(tree_of(path)):
            places[name].append(path)

    assert len(places) > 500
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_no_two_public_functions_share_a_name() -> None:
    """Those of modules; methods of one name are one operation on several types."""
    places = defaultdict(list)
    for path in modules():
        for node in tree_of(path).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
                places[node.name].append(path)

    assert len(places) > 250
    assert {name: paths for name, paths in places.items() if len(paths) > 1 and name not in ENTRY_POINTS} == {}


def test_types_have_no_name_that_is_imported_from_a_library() -> None:
    """A Sequence is collections.abc's and a Tokenizer is tokenizers', in every module."""
    ours: set[str] = set()
    theirs: set[str] = set()
    for path in modules():
        module = tree_of(path)
        ours.update(types_of(module))
        for node in ast.walk(module):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] != "tokenwire":
                theirs.update(alias.name for alias in node.names)

    assert {"Sequence", "Tokenizer"} <= theirs
    assert ours & theirs == AS_IN_VLLM
