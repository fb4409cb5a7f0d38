"""What is in the wheel, and what it says of itself."""

import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path, PurePosixPath

import pytest

from tests.packaging.conftest import ROOT

pytestmark = pytest.mark.slow


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


def test_every_package_is_typed(names: list[PurePosixPath]) -> None:
    """A wheel that says Typed has the marker that type checkers look for, in each package."""
    packages = {name.parts[0] for name in names if name.suffix == ".py"}

    assert packages == {"tokenwire", "coordinator", "worker"}
    assert {PurePosixPath(package, "py.typed") for package in packages} <= set(names)


def test_all_of_each_package_is_there(names: list[PurePosixPath]) -> None:
    """Also what is no Python: the status page, stubs."""
    ours = {
        path.relative_to(ROOT).as_posix()
        for package in ("tokenwire", "coordinator", "worker")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    assert ours <= {name.as_posix() for name in names}


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
