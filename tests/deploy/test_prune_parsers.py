"""What the coordinator's image keeps of packages beside vLLM's parsers: all that may be imported, and nothing else."""

import importlib
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.deploy.test_images import IMAGES

FILES = {
    "__init__.py": "",
    "loaded.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import typed\n"
    "def work():\n    from .late import name\n    from pruned_example import lazy\n    return lazy.exported\n"
    "given = LazyLoader('given', globals(), 'pruned_example.named') if TYPE_CHECKING else work\n",
    "late.py": "import pruned_example.deep.leaf\nname = 1\n",
    "deep/__init__.py": "",
    "deep/leaf.py": "try:\n    from ..lazy import exported\nexcept ImportError:\n    pass\n",
    "lazy/__init__.py": "TYPE_CHECKING = False\nif TYPE_CHECKING:\n    from .behind import exported\n",
    "lazy/behind.py": "exported = 1\n",
    "lazy/other.py": "",
    "named.py": "",
    "typed.py": "",
    "unused/__init__.py": "",
    "unused/large.json": "{}",
}


@pytest.fixture
def prune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the script, to prune an example of which one module is loaded."""
    spec = importlib.util.spec_from_file_location("prune_parsers", IMAGES / "prune_parsers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, text in FILES.items():
        path = tmp_path / "pruned_example" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(module, "PRUNED", ("pruned_example",))
    for name in ("pruned_example", "pruned_example.loaded"):
        monkeypatch.setitem(sys.modules, name, importlib.import_module(name))
    return module


def test_what_a_loaded_module_may_import_stays(prune: ModuleType, tmp_path: Path) -> None:
    """In functions, by name, after others, and what a package exports lazily; not what only type checkers read."""
    kept = prune.reachable()
    assert {str(path.relative_to(tmp_path / "pruned_example")) for path in kept.values()} == {
        *("__init__.py", "loaded.py", "late.py", "deep/__init__.py", "deep/leaf.py"),
        *("lazy/__init__.py", "lazy/behind.py", "named.py"),
    }


def test_other_files_are_deleted_with_their_folders(prune: ModuleType, tmp_path: Path) -> None:
    """Data, too."""
    folder = tmp_path / "pruned_example"
    prune.delete_others(folder, {str(folder / "loaded.py"), str(folder / "lazy" / "behind.py")})
    left = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    assert left == {"loaded.py", "lazy", "lazy/behind.py"}


def test_a_parser_that_lacks_something_fails_the_build(prune: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """Before as after; so does one that does anything else, and an environment without parsers."""
    fine = {"tools: a": [["x"], "RuntimeError: no such token in the vocabulary"]}
    prune.check(fine, fine)
    assert capsys.readouterr().out == "1 parsers do in the pruned environment what they did before\n"
    lacks = {"tools: a": "ParserUnusable: it cannot be made, from ModuleNotFoundError: No module named 'lark'"}
    for before, after, said in (
        (lacks, lacks, "tools: a lacks something: ModuleNotFoundError: No module named 'lark'"),
        (fine, lacks, "tools: a does something else once pruned: ModuleNotFoundError: No module named 'lark'"),
        (fine, {"tools: a": [["y"]]}, "tools: a does something else once pruned: see its results"),
        (fine, {}, "tools: a does something else once pruned"),
        ({}, {}, "cannot be pruned"),
    ):
        with pytest.raises(SystemExit, match=re.escape(said)):
            prune.check(before, after)


def test_a_parser_may_lack_what_vllm_does_not_require(prune: ModuleType) -> None:
    """It says so itself, in an environment with all of vLLM, too."""
    asks = {
        "tools: cohere_command3": "ImportError: The parser requires the `cohere_melody` package. Install it with: pip"
    }
    prune.check(asks, asks)
