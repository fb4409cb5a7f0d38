"""The status view in a real browser, with real processes."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.page.browser import Page
from tests.page.conftest import shown
from tests.page.playground import IDLE, send_message, wait_replies
from tests.processes import Service, simulated_service

NAME = "<img src=x onerror=alert(1)>"
"""What a model may be called."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Two workers with a model whose name needs escaping."""
    worker = ["--sim-step-ms", "10", "--served-model-name", NAME]
    with simulated_service(tmp_path_factory.mktemp("service"), *worker, workers=2) as service:
        yield service


@pytest.fixture
def status(page: Page, service: Service) -> Iterator[Page]:
    """The page of that service."""
    with shown(page, service.url):
        page.wait_for("document.querySelectorAll('#workers tbody tr').length === 2")
        yield page


def worker_addresses(page: Page) -> list[str]:
    """Return the addresses of the workers in the order of the table."""
    found: list[str] = page.evaluate("[...document.querySelectorAll('#workers tbody tr')].map(row => row.dataset.key)")
    return found


def sorted_by(page: Page) -> list[list[str]]:
    """Return the headers that show how the table is sorted."""
    found: list[list[str]] = page.evaluate(
        "[...document.querySelectorAll('#workers [aria-sort]')].map(each => [each.textContent, each.ariaSort])"
    )
    return found


def test_it_shows_the_fleet(status: Page, service: Service) -> None:
    """Every worker with its address and state, and names as plain text."""
    rows = status.text("#workers")

    assert all(address in rows for address in service.addresses)
    assert "2 of 2 workers ready" in status.text("#state")
    assert NAME in rows
    assert NAME in status.text("#models")
    assert status.evaluate("document.querySelectorAll('img').length") == 0
    assert status.evaluate("document.querySelector('#processes-section').hidden")


def test_it_is_live(status: Page) -> None:
    """During a reply the figures change."""
    send_message(status, "Go on", max_tokens=20_000)
    status.wait_for("Number(document.querySelector('#rate').textContent) > 0")
    status.wait_for("document.querySelector('#running').textContent === '1'")

    status.click("#chat-cancel")

    status.wait_for(IDLE)
    status.wait_for("document.querySelector('#running').textContent === '0'")


def test_workers_are_sorted_with_mouse_and_keyboard(status: Page, service: Service) -> None:
    """By address at first; a second press reverses the order."""
    assert worker_addresses(status) == sorted(service.addresses)
    assert sorted_by(status) == [["address", "ascending"]]

    status.click("#workers th:nth-child(1) button")
    assert worker_addresses(status) == sorted(service.addresses, reverse=True)
    assert sorted_by(status) == [["address", "descending"]]

    status.type_key("Tab")
    status.evaluate("document.querySelector('#workers th:nth-child(7) button').focus()")
    status.type_key("Enter")
    assert sorted_by(status) == [["tokens/s", "ascending"]]
    status.type_key(" ")
    assert sorted_by(status) == [["tokens/s", "descending"]]


def test_charts_outlive_a_reload(status: Page, service: Service) -> None:
    """Samples come from the server; the arrow keys show the values of each."""
    body = {"prompt": "one two three four", "max_tokens": 30, "n": 4}
    assert httpx.post(f"{service.url}/v1/completions", json=body).status_code == 200
    values = "[...document.querySelectorAll('#charts .value')].map(each => each.textContent)"
    status.wait_for(f"{values}.every(text => text !== '–')")
    status.wait_for(f"{values}[0] === '0'")  # a sample after the last of this traffic, so that none of it is to come
    before = status.evaluate(values)[1:]  # the throughput goes on

    status.open(service.url)
    status.wait_for(f"{values}[1] !== '–'")
    assert status.evaluate(values)[1:] == before

    status.evaluate("document.querySelector('#charts .plot').focus()")
    status.type_key("ArrowLeft")
    status.wait_for("[...document.querySelectorAll('#charts .at')].every(each => each.textContent.startsWith('at '))")
    label = status.evaluate("document.querySelector('#charts .plot').ariaLabel")
    assert label.startswith("Throughput, last 5 minutes: tokens/s ")


def test_a_theme_is_chosen_and_kept(status: Page, service: Service) -> None:
    """Light and dark follow the system until one is chosen."""
    ground = "getComputedStyle(document.body).backgroundColor"
    status.prefer("light")
    light = status.evaluate(ground)
    status.prefer("dark")
    dark = status.evaluate(ground)
    assert light != dark

    status.evaluate("document.querySelector('#theme').value = 'light'")
    status.evaluate("document.querySelector('#theme').dispatchEvent(new Event('change'))")
    assert status.evaluate(ground) == light
    status.open(service.url)
    assert status.evaluate(ground) == light

    status.evaluate("document.querySelector('#theme').value = ''")
    status.evaluate("document.querySelector('#theme').dispatchEvent(new Event('change'))")
    assert status.evaluate(ground) == dark
    assert status.evaluate("localStorage.length") == 0


def test_a_lost_worker_is_shown_with_the_reason(status: Page, service: Service) -> None:
    """Its row stays, with its last properties."""
    service.workers[1].stop()

    status.wait_for("document.querySelector('#state').textContent.includes('1 of 2')")
    row = f"document.querySelector('[data-key=\"{service.addresses[1]}\"]')"
    assert "connecting" in status.evaluate(f"{row}.innerText")
    assert status.evaluate(f"{row}.querySelector('td:nth-child(3) .note').textContent")


def test_a_key_is_requested_and_kept_in_the_tab(page: Page, tmp_path: Path) -> None:
    """A wrong one is rejected, the right one enables the fleet and the playground. Nothing outlives the tab."""
    (keys := tmp_path / "keys").write_text("tenant sesame\n")
    with simulated_service(tmp_path, coordinator_options=["--api-keys-file", str(keys)]) as service:
        page.open(service.url)
        page.wait_for("!document.querySelector('#key-form').hidden")
        for key in ("wrong", "sesame"):
            page.fill("#key", key)
            page.evaluate("document.querySelector('#key').focus()")
            page.type_key("Enter")
            if key == "wrong":
                page.wait_for("document.querySelector('#key-error').textContent")
        page.wait_for("document.querySelector('#key-form').hidden && document.querySelector('#workers tbody tr')")
        send_message(page, "Hello", max_tokens=3)
        wait_replies(page, 1)

        assert page.evaluate("Object.keys(sessionStorage).sort()") == ["tokenwire-conversation", "tokenwire-key"]
        assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
        page.click("#key-forget")
        page.wait_for("sessionStorage.length === 0 && !document.querySelector('#key-form').hidden")
        assert httpx.get(service.url).status_code == 200
