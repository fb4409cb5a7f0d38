"""Tests that documents name exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_NAMED = re.compile(r"(tests/[\w/]+\.py)(?:::(\w+))?")
_DOCUMENTS = sorted(path.relative_to(ROOT) for path in (*ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md")))


@pytest.mark.parametrize("document", _DOCUMENTS, ids=str)
def test_a_test_that_a_document_names_exists(document: Path) -> None:
    """With its file, and its function if that is named."""
    for name, function in _NAMED.findall((ROOT / document).read_text()):
        path = ROOT / name
        assert path.is_file(), name
        if function:
            assert function in _functions(path), f"{name}::{function}"


def _functions(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
