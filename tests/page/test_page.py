"""The status page in a real browser, with real processes."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.page.browser import CHROMIUM, Page, chromium
from tests.processes import Service, simulated_service

NAME = "<img src=x onerror=alert(1)>"
"""What a model may be called."""
NONE_RUNS = "!document.querySelector('#chat-send').disabled"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A tab."""
    with chromium(tmp_path_factory.mktemp("chromium")) as page:
        yield page


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Two workers with a model whose name needs escaping."""
    worker = ["--sim-step-ms", "10", "--served-model-name", NAME]
    folder = tmp_path_factory.mktemp("service")
    with simulated_service(folder, *worker, workers=2, coordinator_options=["--enable-debug-headers"]) as service:
        yield service


@pytest.fixture
def shown(page: Page, service: Service) -> Iterator[Page]:
    """The page of that service. At the end it has no errors and has sent no request elsewhere."""
    page.problems.clear()
    page.requested.clear()
    page.open(service.url)
    page.wait_for("document.querySelectorAll('#workers tr').length === 2")
    yield page
    assert page.problems == []
    hosts = {urlsplit(url).netloc for url in page.requested if not url.startswith("data:")}
    assert hosts == {urlsplit(service.url).netloc}


def send(page: Page, text: str, max_tokens: int, stop: str = "", tokens: bool = False) -> None:
    """Send a message in the playground, with the keyboard."""
    page.fill("#chat-max", str(max_tokens))
    page.fill("#chat-stop", stop)
    page.evaluate(f"document.querySelector('#chat-tokens').checked = {str(tokens).lower()}")
    page.fill("#chat-text", text)
    page.evaluate("document.querySelector('#chat-text').focus()")
    page.type_key("Enter")


def test_it_shows_the_fleet(shown: Page, service: Service) -> None:
    """Every worker with its address and state, and names as plain text."""
    rows = shown.text("#workers")

    assert all(address in rows for address in service.addresses)
    assert "2 of 2 workers ready" in shown.text("#state")
    assert NAME in rows
    assert NAME in shown.text("#models")
    assert shown.evaluate("document.querySelectorAll('img').length") == 0


def test_it_is_live(shown: Page) -> None:
    """During a reply figures change; the reply grows, and can be stopped."""
    send(shown, "Go on", max_tokens=20_000)
    shown.wait_for("document.querySelector('.assistant .said').textContent.length > 20")
    shown.wait_for("Number(document.querySelector('#rate').textContent) > 0")
    shown.wait_for("document.querySelector('#running').textContent === '1'")
    assert shown.evaluate("document.querySelector('#history-line').points.length") > 0

    shown.click("#chat-cancel")

    shown.wait_for(NONE_RUNS)
    assert shown.text("#chat-note") == "Stopped."
    shown.wait_for("document.querySelector('#running').textContent === '0'")


def test_a_reply_shows_its_tokens(shown: Page, service: Service) -> None:
    """Each with its id and probability, its worker, and the finish reason."""
    send(shown, "Hello", max_tokens=12, tokens=True)
    shown.wait_for(f"{NONE_RUNS} && document.querySelector('.assistant .note')")

    tokens = shown.evaluate("[...document.querySelectorAll('.tokens li')].map(each => each.innerText.split('\\n'))")
    said = shown.evaluate("document.querySelector('.assistant .said').textContent")
    note = shown.text(".assistant .note")
    assert len(tokens) == 12
    assert "".join(text for text, _ in tokens).replace("␣", " ") == said
    for text, facts in tokens:
        token_id, probability = facts.removesuffix(" %").split(" · ")
        assert int(token_id) == ord(text.replace("␣", " "))  # the simulated tokenizer's tokens are bytes
        assert 0 < float(probability) <= 100
    assert any(f"from {address}" in note for address in service.addresses)
    assert "ended by length" in note
    assert "12 made" in note


def test_a_conversation_continues(shown: Page) -> None:
    """Later requests have the earlier turns; a stop string ends a reply; a new conversation is empty."""
    send(shown, "One", max_tokens=30)
    shown.wait_for(
        f"{NONE_RUNS} && document.querySelectorAll('.note').length && document.querySelector('.said ~ .note')"
    )
    first = shown.evaluate("document.querySelector('.assistant .said').textContent")

    send(shown, "One", max_tokens=30, stop=first[:1])
    shown.wait_for(f"{NONE_RUNS} && document.querySelectorAll('.assistant .note').length === 2")
    before = [int(note.split(" prompt tokens")[0].split()[-1]) for note in notes(shown)]
    assert before[1] > before[0] + 30

    shown.click("#chat-clear")
    assert shown.evaluate("document.querySelector('#chat-log').children.length") == 0


def test_errors_are_the_servers_messages(shown: Page) -> None:
    """The next request works."""
    send(shown, "Hello", max_tokens=3, stop="x" * 5000)
    shown.wait_for("document.querySelector('#chat-note').textContent.includes('4096')")
    shown.problems.clear()  # the browser itself names every 400

    send(shown, "Hello", max_tokens=3)
    shown.wait_for(f"{NONE_RUNS} && document.querySelector('.said ~ .note')")


def test_everything_has_a_name(shown: Page) -> None:
    """Controls have names for screen readers, and tables work on a phone too."""
    shown.resize(360, 740)
    try:
        nodes = shown.call("Accessibility.getFullAXTree")["nodes"]
        width = shown.evaluate("document.documentElement.scrollWidth")
    finally:
        shown.call("Emulation.clearDeviceMetricsOverride")

    seen = [node for node in nodes if not node["ignored"]]
    roles = [node["role"]["value"] for node in seen]
    controls = [
        node for node in seen if node["role"]["value"] in ("button", "textbox", "combobox", "checkbox", "spinbutton")
    ]
    assert len(controls) >= 7
    assert all(node["name"]["value"] for node in controls)
    assert roles.count("table") == 2
    assert roles.count("row") >= 3
    assert width <= 360


def test_a_lost_worker_is_shown_with_the_reason(shown: Page, service: Service) -> None:
    """Its row stays, with its last properties."""
    service.workers[1].stop()

    shown.wait_for("document.querySelector('#state').textContent.includes('1 of 2')")
    row = shown.evaluate(f"document.querySelector('[data-key=\"{service.addresses[1]}\"]').innerText")
    assert "connecting" in row
    assert shown.evaluate(
        f"document.querySelector('[data-key=\"{service.addresses[1]}\"] td:nth-child(3) .note').textContent"
    )


def test_a_key_is_asked_for_and_kept_in_the_tab(page: Page, tmp_path: Path) -> None:
    """A wrong one is rejected, the right one enables the fleet and the playground; it is stored only in the tab."""
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
        page.wait_for("document.querySelector('#key-form').hidden && document.querySelector('#workers tr')")
        send(page, "Hello", max_tokens=3)
        page.wait_for(f"{NONE_RUNS} && document.querySelector('.said ~ .note')")

        assert page.evaluate("[sessionStorage.length, localStorage.length, document.cookie]") == [1, 0, ""]
        page.click("#key-forget")
        page.wait_for("sessionStorage.length === 0 && !document.querySelector('#key-form').hidden")
        assert httpx.get(service.url).status_code == 200


def notes(page: Page) -> list[str]:
    """Return the annotations of each reply."""
    found: list[str] = page.evaluate("[...document.querySelectorAll('.assistant .note')].map(each => each.textContent)")
    return found
