"""The generated pages of the reference are current."""

import pytest

from scripts.reference.pages import FOLDER, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_current(name: str) -> None:
    """After a change of a route, a metric, an error or the protocol: `make reference`."""
    assert (FOLDER / name).read_text() == PAGES[name]()
