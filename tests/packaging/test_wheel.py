"""What is in the wheel, and what it says of itself."""

import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path, PurePosixPath

import pytest

from tests.packaging.conftest import ROOT

pytestmark = pytest.mark.slow


def package_files() -> set[str]:
    """Return what the package is to hold, by paths in the wheel."""
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
    """What installers and PyPI read."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def test_one_package_is_installed(names: list[PurePosixPath]) -> None:
    """Other packages may be called coordinator or worker. A wheel that says Typed has the marker of type checkers."""
    assert {name.parts[0] for name in names if not name.parts[0].endswith(".dist-info")} == {"tokenwire"}
    assert PurePosixPath("tokenwire/py.typed") in names


def test_all_of_the_package_is_there(names: list[PurePosixPath]) -> None:
    """Also what is no Python: the status page, stubs."""
    assert package_files() == {name.as_posix() for name in names if name.parts[0] == "tokenwire"}


def test_a_wheel_of_the_checkout_is_the_same(names: list[PurePosixPath], checkout_wheel: Path) -> None:
    """The links that put two folders into the package are not in the archive of sources, and are not missed."""
    with zipfile.ZipFile(checkout_wheel) as archive:
        assert sorted(archive.namelist()) == sorted(name.as_posix() for name in names)


def test_sources_keep_their_layout(sdist: Path) -> None:
    """Whoever unpacks them finds the folders where they are in the repository, each once."""
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


def test_the_projects_home_is_named(metadata: Message) -> None:
    """Tools that show the package have a link to show."""
    links = dict(str(value).split(", ", 1) for value in metadata.get_all("Project-URL", []))

    assert links["Homepage"].startswith("https://")
    assert all("example" not in link for link in links.values())


def test_what_is_used_from_within_has_an_upper_bound(metadata: Message) -> None:
    """Packages whose private parts we build on do not change under an installation."""
    requirements = [str(value) for value in metadata.get_all("Requires-Dist", [])]

    for package in ("uvicorn", "grpcio-health-checking", "tokenizers", "vllm"):
        (*_, requirement) = [each for each in requirements if each.startswith(package)]
        assert "<" in requirement or "==" in requirement, requirement
