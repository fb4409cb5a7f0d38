"""Packing for a machine without network, with tiny wheels."""

import tomllib
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_LZMA, ZipFile

import pytest

from gpu.manifest import MANIFEST, STREAM, Manifest
from gpu.pack import PACKAGES, KitPackages, cut, repack, unmet
from tests.docs.commands import ROOT

KERNELS = b"kernel" * 2**18


def packages(**tables: dict[str, str]) -> KitPackages:
    """Return what a packages.toml of these tables says."""
    return KitPackages("3.12", tables.get("wheels", {}), tables.get("machine", {}), tables.get("without", {}), {})


def wheel(folder: Path, name: str, *requires: str, files: dict[str, bytes] | None = None) -> Path:
    """Write a wheel of version 1.0."""
    info = f"{name}-1.0.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0", *(f"Requires-Dist: {each}" for each in requires)]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        archive.writestr(f"{info}/METADATA", "\n".join(lines) + "\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
        for member, data in (files or {f"{name}.py": b"VERSION = 1\n"}).items():
            archive.writestr(member, data)
    return path


def test_parts_hold_the_files_one_after_the_other(tmp_path: Path) -> None:
    """A part may end within a file, and each has the manifest of all."""
    files = [tmp_path / name for name in ("a", "b", "c")]
    for path, data in zip(files, (b"aaaaa", b"bb", b"cccc"), strict=True):
        path.write_bytes(data)

    manifest = cut(packages(machine={"torch": "2.11.0"}), files, tmp_path / "out", part_bytes=4)

    folders = [tmp_path / "out" / name for name in ("part-01", "part-02", "part-03")]
    assert [(folder / STREAM).read_bytes() for folder in folders] == [b"aaaa", b"abbc", b"ccc"]
    assert [Manifest.read(folder / MANIFEST) for folder in folders] == [manifest] * 3
    assert manifest.machine == {"torch": "2.11.0"}


def test_parts_of_an_earlier_packing_go(tmp_path: Path) -> None:
    """Otherwise they would be brought."""
    file = tmp_path / "file"
    file.write_bytes(b"1234")
    cut(packages(), [file], tmp_path / "out", part_bytes=1)

    cut(packages(), [file], tmp_path / "out", part_bytes=3)

    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["part-01", "part-02"]


def test_a_repacked_wheel_has_all_but_the_files_that_are_left_out(tmp_path: Path) -> None:
    """What deflate makes much smaller, LZMA makes smaller still."""
    old = wheel(tmp_path, "demo", files={"demo/fa2.so": b"x", "demo/fa3.so": KERNELS, "demo/random": b"\x91\x02\xfe"})

    (tmp_path / "new").mkdir()

    new = repack(old, tmp_path / "new", ["demo/fa2.*"])

    with ZipFile(old) as before, ZipFile(new) as after:
        assert set(before.namelist()) - set(after.namelist()) == {"demo/fa2.so"}
        assert after.read("demo/fa3.so") == KERNELS
        assert after.getinfo("demo/fa3.so").compress_type == ZIP_LZMA
        assert after.getinfo("demo/random").compress_type == ZIP_DEFLATED


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        ({}, ["requires needed>=1"]),
        ({"wheels": {"needed": "1.5"}}, []),
        ({"machine": {"needed": ""}}, []),
        ({"machine": {"needed": "0.9"}}, ["requires needed>=1, not 0.9"]),
        ({"machine": {"needed": "0.9"}, "wheels": {"needed": "1.5"}}, []),
        ({"without": {"needed": "for video"}}, []),
    ],
)
def test_what_neither_wheels_nor_the_machine_have_is_found(
    tmp_path: Path, tables: dict[str, dict[str, str]], expected: list[str]
) -> None:
    """A wheel that is brought goes before what the machine has; markers are those of the machine."""
    demo = wheel(tmp_path, "demo", "needed>=1", "other; python_version < '3.12'", "more; extra == 'more'")

    assert list(unmet(packages(**tables), [demo], "3.12")) == [f"{demo.name} {each}" for each in expected]


def test_versions_are_those_that_tokenwire_is_tested_with() -> None:
    """Of the packages that both have; vLLM is that of the machine's torch."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    tested = dict(each.split("==") for each in settings["tool"]["uv"]["constraint-dependencies"])

    brought = KitPackages.read(PACKAGES).wheels

    both = tested.keys() & brought.keys()
    assert len(both) > 80
    assert {name: brought[name] for name in both} == {name: tested[name] for name in both}
