"""Pages and anchors of docs/ that code, chart, alerts and messages name exist."""

import re
import subprocess
from functools import cache

import pytest
from pymdownx.slugs import slugify

from tests.docs.commands import PAGES, ROOT
from tokenwire.protocol.version import MAJOR, MINOR

MENTION = re.compile(r"\bdocs/([\w/-]+\.md)(#[\w-]+)?")
HEADING = re.compile(r"^#{1,4} (.+)$", re.MULTILINE)


def mentions() -> list[tuple[str, str, str]]:
    """Return page, anchor and the file that names them, of all files in the repository."""
    listed = subprocess.run(
        ["git", "grep", "-IoE", r"\bdocs/[A-Za-z0-9_/-]+\.md(#[A-Za-z0-9_-]+)?"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode > 1:
        pytest.skip("not a checkout of git")
    lines = [line.partition(":") for line in listed.stdout.splitlines()]
    return [(found[1], found[2] or "", file) for file, _, text in lines if (found := MENTION.match(text))]


@cache
def anchors(page: str) -> set[str]:
    """Return the anchors of a page's headings, as the site makes them; blocks of code are none."""
    text = re.sub(r"^```.*?^```", "", (ROOT / "docs" / page).read_text(), flags=re.MULTILINE | re.DOTALL)
    slug = slugify(case="lower")
    return {slug(re.sub(r"[`*]", "", heading), "-") for heading in HEADING.findall(text)}


def test_every_page_that_is_named_exists() -> None:
    """With its anchor, if one is named."""
    found = mentions()

    assert len(found) > 20
    for page, anchor, file in found:
        assert (ROOT / "docs" / page).is_file(), f"{file} names docs/{page}"
        assert not anchor or anchor[1:] in anchors(page), f"{file} names docs/{page}{anchor}"


def test_every_test_that_is_named_exists() -> None:
    """A page says which test holds a promise; the test is there, and its module is where it says."""
    named = {match for path in PAGES for match in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", path.read_text())}
    files = {file for path in PAGES for file in re.findall(r"`(tests/[\w/]+\.py)`", path.read_text())}

    assert len(named) > 20
    for file, test in named:
        assert re.search(rf"^(async )?def {test}\(", (ROOT / file).read_text(), re.MULTILINE), f"{file} has no {test}"
    assert {file for file in files if not (ROOT / file).is_file()} == set()


def test_tables_name_their_columns() -> None:
    """Who hears a page read out gets a column's name with each cell."""
    tables = [
        (path, head)
        for path in PAGES
        for head in re.findall(r"^ *(\|.*\|)\n *\|[ :|-]+\|$", path.read_text(), re.MULTILINE)
    ]

    assert len(tables) > 50
    assert [(path, head) for path, head in tables if not all(map(str.strip, head[1:-1].split("|")))] == []


def test_every_mention_of_a_release_is_of_this_one() -> None:
    """Images, charts and pages carry the version of the package, which a release changes everywhere at once."""
    version = re.compile(r"^version = \"(.+)\"$", re.MULTILINE).search((ROOT / "pyproject.toml").read_text())
    places = (
        r"tokenwire/(?:coordinator|worker|worker-cpu):(\d\S*)|ARG VERSION=(\S+)|__version__ = \"(.+)\""
        r"|^(?:version|appVersion): (\d\S*)$"
    )
    listed = ["tokenwire/__init__.py", *(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]
    listed += [str(path.relative_to(ROOT)) for path in (ROOT / "deploy").rglob("*") if path.is_file()]
    found = {
        (name, next(filter(None, match.groups())))
        for name in listed
        for match in re.finditer(places, (ROOT / name).read_text(errors="replace"), re.MULTILINE)
    }

    assert version is not None
    assert {(name, text) for name, text in found if text != version[1]} == set()
    assert len({name for name, _ in found}) > 8


def test_the_version_of_the_protocol_is_the_one_announced() -> None:
    """The page on compatibility names it."""
    page = (ROOT / "docs" / "reference" / "compatibility.md").read_text()

    assert f"the version of their protocol, now {MAJOR}.{MINOR}, when they connect" in page
