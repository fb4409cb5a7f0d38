"""One name means one thing: classes of the project have names of their own."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
GENERATED = ROOT / "tokenwire" / "v1"


def test_no_two_classes_share_a_name() -> None:
    """So a class can be searched for and spoken of by its name alone, in either half."""
    modules = defaultdict(list)
    for folder in ("coordinator", "worker", "tokenwire"):
        # rglob does not follow tokenwire's links to the other two.
        for path in (ROOT / folder).rglob("*.py"):
            if not path.is_relative_to(GENERATED):
                for node in ast.walk(ast.parse(path.read_text())):
                    if isinstance(node, ast.ClassDef):
                        modules[node.name].append(str(path.relative_to(ROOT)))

    assert len(modules) > 400
    assert {name: paths for name, paths in modules.items() if len(paths) > 1} == {}
