"""The contents and the metadata of the wheel."""

import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path, PurePosixPath

import pytest

from tests.packaging.conftest import ROOT

pytestmark = [pytest.mark.ci, pytest.mark.slow]


def package_files() -> set[str]:
    """Return the files that the package must have, by their paths in the wheel."""
    found = {}
    for folder, inside in (("tokenwire", ""), ("coordinator", "tokenwire/"), ("worker", "tokenwire/")):
        for path in (ROOT / folder).rglob("*"):  # which follows no links
            if path.is_file() and "__pycache__" not in path.parts:
                found[inside + path.relative_to(ROOT).as_posix()] = path
    return set(found)


@pytest.fixture(scope="module")
def names(wheel: Path) -> list[PurePosixPath]:
    """Names of the wheel's files."""
    with zipfile.ZipFile(wheel) as archive:
        return [PurePosixPath(name) for name in archive.namelist()]


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    """The metadata for installers and PyPI."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def test_one_package_is_installed(names: list[PurePosixPath]) -> None:
    """Other packages may be named coordinator or worker. A typed wheel has the marker of type checkers."""
    assert {name.parts[0] for name in names if not name.parts[0].endswith(".dist-info")} == {"tokenwire"}
    assert PurePosixPath("tokenwire/py.typed") in names


def test_the_wheel_is_complete(names: list[PurePosixPath]) -> None:
    """Including files other than Python: the status page, stubs."""
    assert package_files() == {name.as_posix() for name in names if name.parts[0] == "tokenwire"}


def test_a_wheel_of_the_checkout_is_the_same(names: list[PurePosixPath], checkout_wheel: Path) -> None:
    """The sdist does not have the links to the two folders, and does not need them."""
    with zipfile.ZipFile(checkout_wheel) as archive:
        assert sorted(archive.namelist()) == sorted(name.as_posix() for name in names)


def test_sources_keep_their_layout(sdist: Path) -> None:
    """The sdist has the repository's folders, each once."""
    with tarfile.open(sdist) as archive:
        names = [PurePosixPath(*PurePosixPath(member.name).parts[1:]).as_posix() for member in archive]

    assert len(names) == len(set(names))
    assert {
        "coordinator/app.py",
        "worker/server.py",
        "tokenwire/errors.py",
        "proto/tokenwire/v1/inference.proto",
    } <= set(names)
    assert not [name for name in names if name.startswith(("tokenwire/coordinator", "tokenwire/worker"))]


def test_the_project_has_a_link(metadata: Message) -> None:
    """For tools that show packages."""
    links = dict(str(value).split(", ", 1) for value in metadata.get_all("Project-URL", []))

    assert links["Homepage"].startswith("https://")
    assert all("example" not in link for link in links.values())


def test_packages_with_private_imports_have_an_upper_bound(metadata: Message) -> None:
    """Their internals must not change under an installation."""
    requirements = [str(value) for value in metadata.get_all("Requires-Dist", [])]

    for package in ("uvicorn", "grpcio-health-checking", "tokenizers", "vllm"):
        (*_, requirement) = [each for each in requirements if each.startswith(package)]
        assert "<" in requirement or "==" in requirement, requirement
