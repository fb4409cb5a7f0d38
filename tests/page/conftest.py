"""A tab for the tests of a file, and what holds for every page that they open."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.page.browser import Page, chromium

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all of these tests: they start processes, and the browser may have to be fetched."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.npm)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A tab."""
    with chromium(tmp_path_factory.mktemp("chromium")) as page:
        yield page


@contextmanager
def shown(page: Page, url: str) -> Iterator[Page]:
    """Open the status page. At the end it has no errors and has sent no request to another host."""
    page.open("about:blank")
    page.problems.clear()
    page.requested.clear()
    page.open(url)
    page.wait_for("document.querySelectorAll('#workers tbody tr').length")
    yield page
    assert page.problems == []
    assert {urlsplit(each).netloc for each in page.requested if not each.startswith("data:")} == {urlsplit(url).netloc}
