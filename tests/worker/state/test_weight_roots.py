"""Weights are read only from below the configured roots, however the path is given."""

from pathlib import Path
from typing import Any

import pytest

from tokenwire.errors import InvalidRequest
from tokenwire.worker.state.weight_roots import WeightRoots


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with a directory inside and a link that leads out of it."""
    root = (tmp_path / "root").resolve()
    (root / "step_1").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (root / "link").symlink_to(tmp_path / "outside")
    return root


def test_paths_inside_are_accepted(root: Path) -> None:
    """Also missing ones; without roots every path is accepted."""
    for path in (root, root / "step_1", root / "step_9", root / "link" / ".." / "root" / "step_1"):
        WeightRoots([root]).check(str(path))
    WeightRoots().check("/etc")


@pytest.mark.parametrize("path", ["", "/", "..", "../root2", "link", "link/x", "~", "~nobody/x", "a\0b", "org/model"])
def test_paths_outside_are_refused(root: Path, path: str) -> None:
    """Whether by a link, relative to the worker's working directory, or as a hub name."""
    shown = str(root / path) if path.startswith("link") else path
    with pytest.raises(InvalidRequest, match="only from"):
        WeightRoots([root]).check(shown)


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("reload_weights", [[], {"weights_path": "OUT", "is_checkpoint_format": True}]),
        ("reload_weights", [[None, "OUT"], {}]),
        ("reload_weights", [[None, "gpt2"], {}]),
        ("update_config", [[{"model_config": {"model": "gpt2"}}], {}]),
        ("anything", [["OUT"], {}]),
        ("anything", [[], {"deep": [{"deeper": ["x", {"y": "OUT"}]}]}]),
        ("anything", [["file://OUT"], {}]),
        ("anything", [[".."], {}]),
    ],
)
def test_arguments_of_calls_are_checked(root: Path, method: str, arguments: Any) -> None:
    """At any depth; for methods that take locations a bare name is checked too, as it may be a hub name."""
    outside = _replace(arguments, str(root.parent / "outside"))
    with pytest.raises(InvalidRequest, match="only from"):
        WeightRoots([root]).check_call(method, outside)
    WeightRoots().check_call(method, outside)


def test_other_arguments_are_accepted(root: Path) -> None:
    """Names, numbers, and paths inside."""
    roots = WeightRoots([root])
    roots.check_call("init_broadcaster", [["10.0.0.7", 29500], {"name": "group", "deep": [None, 1.5, True, {}]}])
    roots.check_call("reload_weights", [[], {"weights_path": str(root / "step_1"), "is_checkpoint_format": True}])


def _replace(value: Any, outside: str) -> Any:
    if isinstance(value, str):
        return value.replace("OUT", outside)
    if isinstance(value, dict):
        return {_replace(name, outside): _replace(inner, outside) for name, inner in value.items()}
    return [_replace(inner, outside) for inner in value] if isinstance(value, list) else value
