"""The documentation builds as a site without a broken link, and needs nothing from another host."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.page.axe import violations
from tests.page.browser import Page
from tests.page.conftest import page as page

ROOT = Path(__file__).parents[2]
LOADED = re.compile(r'<(?:script|img|iframe)[^>]* src="(https?:)?//|<link[^>]* rel="(?:stylesheet|preconnect)"[^>]*//')

pytestmark = pytest.mark.slow


def build(root: Path, target: Path) -> "subprocess.CompletedProcess[str]":
    """Build the site of a checkout, as `make docs` does: with --quiet, mkdocs would ignore that warnings are errors."""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(target)],
        cwd=root,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of this checkout."""
    target = tmp_path_factory.mktemp("docs") / "site"
    built = build(ROOT, target)
    assert built.returncode == 0, built.stderr
    return target


def test_the_site_builds_and_loads_nothing_from_elsewhere(site: Path) -> None:
    """Its pages are README, CHANGELOG and everything in docs/; search has its index beside them."""
    pages = {path.relative_to(site).with_suffix("") for path in site.rglob("*.html")}
    sources = {path.relative_to(ROOT / "docs").with_suffix("") for path in (ROOT / "docs").rglob("*.md")}
    assert pages == sources | {Path("index"), Path("changelog"), Path("404")}
    assert (site / "search" / "search_index.json").stat().st_size > 100_000
    assert (site / "search" / "search_index.js").exists(), "from file:// a script is all that can be loaded"
    assert "unpkg.com" not in (site / "index.html").read_text()
    for path in site.rglob("*.html"):
        assert not LOADED.search(path.read_text()), path
        assert 'data-md-component="source"' not in path.read_text(), "the theme's script would ask GitHub for stars"


@pytest.mark.npm
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("-- --keep-alive-timeout", "reference/options.html"),
        ('"--keep-alive-timeout"', "reference/options.html"),
        ("`--keep-alive-time", "reference/options.html"),
        ("/v1/chat/completions", "reference/http.html"),
        ('"POST /v1/messages"', "reference/http.html"),
        ("coordinator/app.py", "explanation/architecture.html"),
        ("vllm:kv_cache_usage_perc", "reference/metrics.html"),
        ("outcome=ok", "reference/metrics.html"),
        ("429", "reference/errors.html"),
    ],
)
def test_the_search_finds_names_as_they_are_written(site: Path, page: Page, query: str, found: str) -> None:
    """Options, routes and paths, with dashes, slashes and quotes, also from file://; their page is the first result."""
    page.open("about:blank")
    page.open(f"{site.as_uri()}/index.html?q={quote(query)}")

    page.wait_for("document.querySelector('.md-search-result__link')")
    assert page.evaluate("document.querySelector('.md-search-result__link').pathname").endswith(f"/{found}")
    assert page.problems == []


@pytest.mark.npm
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_blocks_of_code_can_be_read(site: Path, page: Page, scheme: str) -> None:
    """Comments and punctuation too have enough contrast, in light and dark."""
    page.prefer(scheme)
    for name in ("guides/one-machine.html", "reference/token-ids.html"):
        page.open(f"{site.as_uri()}/{name}")
        assert violations(page, "'.highlight', {runOnly: ['color-contrast']}") == []


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("[x](architecture.md#no-such-heading)", "no-such-heading"),
        ("[x](../../examples/no_such.py)", "examples/no_such.py, which does not exist"),
    ],
)
def test_a_broken_link_is_an_error(tmp_path: Path, broken: str, message: str) -> None:
    """To an anchor, or to a file of the repository."""
    for name in ("docs", "scripts", "examples", "deploy", "gpu"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for path in [ROOT / "mkdocs.yml", *ROOT.glob("*.md")]:
        shutil.copy(path, tmp_path)
    with (tmp_path / "docs" / "explanation" / "why.md").open("a") as page:
        page.write(f"\n{broken}\n")

    built = build(tmp_path, tmp_path / "site")

    assert built.returncode == 1
    assert message in built.stderr
