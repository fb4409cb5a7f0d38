"""What people look at, in light and dark, on a desktop and a phone: accessible, without errors, and in pictures.

With TOKENWIRE_PICTURES=FOLDER the fleet is busy for longer first, and the pictures are those of the documentation.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.page.axe import violations
from tests.page.browser import Page
from tests.page.conftest import shown
from tests.page.playground import send_message, wait_replies
from tests.page.scene import busy_service
from tests.processes import Service

PICTURES = os.environ.get("TOKENWIRE_PICTURES")
BUSY_S = 280 if PICTURES else 0
SCHEMES = ("light", "dark")
DESKTOP, NARROW, PHONE = (1120, 1180), (680, 1180), (375, 812)
DRAWN = "[...document.querySelectorAll('#charts .value')].every(each => each.textContent !== '–')"
STATES = "[...document.querySelectorAll('#workers td .dot')]"

pytestmark = [pytest.mark.ci, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, int]]:
    """A fleet with some history, which has just lost a worker."""
    with busy_service(tmp_path_factory.mktemp("service")) as (service, token_count):
        time.sleep(BUSY_S)
        service.workers[2].stop()
        yield service, token_count


@pytest.fixture(params=SCHEMES)
def scheme(request: pytest.FixtureRequest, page: Page) -> Iterator[str]:
    """The colors of the system."""
    page.prefer(request.param)
    yield request.param
    page.call("Emulation.setEmulatedMedia", features=[])
    page.call("Emulation.clearDeviceMetricsOverride")


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """The folder for pictures."""
    return Path(PICTURES) if PICTURES else tmp_path


def check_accessibility(page: Page) -> None:
    """Check the rules of accessibility at both widths, and that nothing needs more than the width of a phone."""
    for size in (PHONE, DESKTOP):
        page.resize(*size)
        assert violations(page) == [], size
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0]


def take(page: Page, path: Path, size: tuple[int, int], scale: float = 1.5) -> None:
    """Take a picture, once what depends on the size is drawn."""
    page.resize(*size, scale)
    page.evaluate("new Promise(resolve => requestAnimationFrame(() => requestAnimationFrame(resolve)))")
    page.screenshot(path)
    assert path.stat().st_size < 150_000


def test_the_status_view(page: Page, busy: tuple[Service, int], scheme: str, pictures: Path) -> None:
    """Figures, charts with values, and a worker that is lost; states stay on one line."""
    with shown(page, busy[0].url):
        page.wait_for(f"{DRAWN} && document.querySelectorAll('#processes tbody tr').length === 2")
        page.wait_for("document.querySelector('#state').textContent.includes('2 of 3')")
        page.wait_for("document.querySelector('#rate').textContent !== '–'")
        page.resize(*NARROW)
        assert page.evaluate(f"{STATES}.map(each => each.getClientRects().length)") == [1, 1, 1]
        check_accessibility(page)
        end = page.evaluate("Math.ceil(document.querySelector('#workers').getBoundingClientRect().bottom + scrollY)")
        take(page, pictures / f"status-{scheme}.webp", (DESKTOP[0], end + 16))


def test_the_playground(page: Page, busy: tuple[Service, int], scheme: str, pictures: Path) -> None:
    """A conversation with the tokens of a reply."""
    with shown(page, f"{busy[0].url}/#playground"):
        page.click("#chat-clear")
        for count, text in enumerate(("Who are you?", "And in detail?"), 1):
            send_message(page, text, max_tokens=busy[1] - 1, tokens=count == 2)
            wait_replies(page, count)
        check_accessibility(page)
        take(page, pictures / f"playground-{scheme}.webp", (1120, 980))


def test_the_api_page(page: Page, busy: tuple[Service, int], scheme: str) -> None:
    """The routes, one of them open."""
    page.open(f"{busy[0].url}/docs")
    page.wait_for("document.querySelectorAll('.operation').length > 20")
    page.evaluate("document.querySelector('.operation').open = true")
    page.wait_for("document.querySelector('.operation form')")
    check_accessibility(page)


def test_everything_is_reached_by_the_keyboard(page: Page, busy: tuple[Service, int]) -> None:
    """Tab reaches every visible control, in the order of the page, each with a visible outline."""
    focused = "document.activeElement"
    page.resize(*DESKTOP)
    with shown(page, busy[0].url):
        page.wait_for(DRAWN)
        reached = []
        for _ in range(40):
            page.type_key("Tab")
            if page.evaluate(f"{focused} === document.body"):
                break
            assert page.evaluate(f"getComputedStyle({focused}).outlineStyle") == "solid"
            reached.append(
                page.evaluate(f"{focused}.id || {focused}.name || {focused}.className || {focused}.textContent")
            )

    headers = ["address", "model", "state", "running", "waiting", "KV cache", "tokens/s"]
    assert reached == ["status-link", "playground-link", "API", "theme", "span", *["plot"] * 5, *headers]
