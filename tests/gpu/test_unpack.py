"""Unpacking what was packed, part by part."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpu import unpack as module
from gpu.manifest import MANIFEST, STREAM
from gpu.pack import cut
from gpu.unpack import differences, install, join, keep_parts, missing_parts
from tests.gpu.test_pack import packages, wheel


@pytest.fixture
def wheels(tmp_path: Path) -> list[Path]:
    """Two wheels of one namespace."""
    return [wheel(tmp_path / "wheels", name, files={f"shared/{name}.py": b"VERSION = 1\n"}) for name in ("one", "two")]


def bring(name: str, packed: Path, tree: Path) -> Path:
    """Copy one part into the tree, instead of what was there."""
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(packed / name, tree / name)
    return tree


def test_parts_come_one_by_one_and_are_joined(tmp_path: Path, wheels: list[Path]) -> None:
    """The tree holds only the latest."""
    packed, tree, kept = tmp_path / "packed", tmp_path / "tree", tmp_path / "kept"
    names = [part.name for part in cut(packages(), wheels, packed, part_bytes=500).parts]

    missing = [missing_parts(keep_parts(bring(name, packed, tree), kept).manifest, kept) for name in names]

    assert len(names) > 2
    assert missing == [names[count:] for count in range(1, len(names) + 1)]
    (tmp_path / "joined").mkdir()
    files = join(keep_parts(tree, kept).manifest, kept, tmp_path / "joined")
    assert [file.read_bytes() for file in files] == [path.read_bytes() for path in wheels]


@pytest.mark.parametrize("manifest", ["whole", "half", "none"])
def test_a_damaged_part_is_named_and_keeps_no_other_from_being_kept(
    tmp_path: Path, wheels: list[Path], manifest: str
) -> None:
    """It is brought again; nor does one do so whose manifest is still being copied."""
    packed, tree, kept = tmp_path / "packed", tmp_path / "tree", tmp_path / "kept"
    names = [part.name for part in cut(packages(), wheels, packed, part_bytes=500).parts]
    shutil.copytree(packed, tree)
    (tree / "part-02" / STREAM).write_bytes(b"something else")
    if manifest == "half":
        (tree / "part-02" / MANIFEST).write_text('{"packed_at":')
    elif manifest == "none":
        (tree / "part-02" / MANIFEST).unlink()

    came = keep_parts(tree, kept)

    assert (len(names) > 2, came.damaged, missing_parts(came.manifest, kept)) == (True, ["part-02"], ["part-02"])


def test_parts_of_an_earlier_packing_serve_where_they_are_the_same(tmp_path: Path, wheels: list[Path]) -> None:
    """What was packed later decides, even if an earlier part still lies in the tree."""
    packed, tree, kept = tmp_path / "packed", tmp_path / "tree", tmp_path / "kept"
    cut(packages(), wheels[:1], packed, part_bytes=300)
    shutil.copytree(packed, tree)
    keep_parts(tree, kept)
    later = cut(packages(), wheels, packed, part_bytes=300)
    shutil.copytree(packed / later.parts[-1].name, tree / later.parts[-1].name)

    came = keep_parts(tree, kept)
    missing = missing_parts(came.manifest, kept)

    assert (came.manifest, came.damaged) == (later, [])
    assert "part-01" not in missing
    assert later.parts[-1].name not in missing


def test_installed_wheels_are_imported_from_the_folder(tmp_path: Path, wheels: list[Path]) -> None:
    """Those that share a folder too, and what was installed before goes."""
    site = tmp_path / "site"
    (site / "old").mkdir(parents=True)

    install(wheels, site)

    code = "import shared.one, shared.two; print(shared.one.VERSION + shared.two.VERSION)"
    run = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(site)}, capture_output=True, text=True, check=True
    )
    assert run.stdout == "2\n"
    assert not (site / "old").exists()


def test_packages_that_the_machine_lacks_are_listed() -> None:
    """A local version, as of a build for CUDA, does not count."""
    expected = {"pytest": pytest.__version__, "no-such-package": "", "click": "0.1"}

    assert [each.partition(" ")[0] for each in differences(expected)] == ["no-such-package", "click"]


def test_without_any_part_it_says_where_they_are_expected(tmp_path: Path) -> None:
    """As in a tree that came without them."""
    command = [sys.executable, "-m", module.__name__, "--packed", str(tmp_path / ".gpu"), "--folder", str(tmp_path)]

    run = subprocess.run(command, cwd=module.TREE, capture_output=True, text=True, check=False)

    assert run.returncode == 1
    assert str(tmp_path / ".gpu") in run.stderr
