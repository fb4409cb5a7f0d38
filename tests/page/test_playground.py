"""The playground in a real browser, with real processes."""

import base64
from collections.abc import Iterator

import pytest

from tests.coordinator.media import pictures
from tests.page.browser import Page
from tests.page.conftest import shown
from tests.page.playground import IDLE, notes, send_message, wait_replies
from tests.processes import Service, simulated_service

LOG = "document.querySelector('#chat-log').innerText"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A worker whose tokens are bytes, and which takes pictures."""
    folder = tmp_path_factory.mktemp("service")
    worker = ("--sim-step-ms", "10", "--sim-image-tokens", "70")
    with simulated_service(folder, *worker, coordinator_options=["--enable-debug-headers"]) as service:
        yield service


@pytest.fixture
def playground(page: Page, service: Service) -> Iterator[Page]:
    """An empty conversation."""
    with shown(page, f"{service.url}/#playground"):
        page.click("#chat-clear")
        yield page


def test_a_reply_is_streamed_and_stopped(playground: Page, service: Service) -> None:
    """It grows; stopping aborts it on the worker, and what arrived stays in the conversation."""
    send_message(playground, "Go on", max_tokens=20_000)
    playground.wait_for("document.querySelector('.assistant .reply-text').textContent.length > 20")

    playground.click("#chat-cancel")

    playground.wait_for(IDLE)
    assert playground.text("#chat-note") == "Stopped."
    service.wait_slots(0)
    assert playground.evaluate("JSON.parse(sessionStorage['tokenwire-conversation'])[1].content.length") > 20


def test_a_reply_shows_its_tokens(playground: Page, service: Service) -> None:
    """Each with its id and log-probability, its worker, and the finish reason."""
    send_message(playground, "Hello", max_tokens=12, tokens=True)
    wait_replies(playground, 1)

    tokens = playground.evaluate(
        "[...document.querySelectorAll('.tokens li')].map(each => each.innerText.split('\\n'))"
    )
    reply_text = playground.evaluate("document.querySelector('.assistant .reply-text').textContent")
    (note,) = notes(playground)
    assert len(tokens) == 12
    assert "".join(text for text, _, _ in tokens).replace("␣", " ") == reply_text
    for text, token_id, logprob in tokens:
        assert int(token_id) == ord(text.replace("␣", " "))  # the simulated tokenizer's tokens are bytes
        assert float(logprob.replace("−", "-")) <= 0
    assert f"from {service.addresses[0]}" in note
    assert "ended by length" in note
    assert "12 made" in note


def test_tokens_are_requested_only_on_demand(playground: Page) -> None:
    """Without the box there are none."""
    send_message(playground, "Hello", max_tokens=5)
    wait_replies(playground, 1)

    assert playground.evaluate("document.querySelector('.tokens')") is None


def test_a_conversation_continues_until_it_is_cleared(playground: Page, service: Service) -> None:
    """Later requests have the earlier turns, also after a reload; a stop string ends a reply."""
    send_message(playground, "One", max_tokens=30, tokens=True)
    wait_replies(playground, 1)
    first = playground.evaluate("document.querySelector('.assistant .reply-text').textContent")
    log = playground.evaluate(LOG)

    playground.open("about:blank")
    playground.open(f"{service.url}/#playground")
    playground.wait_for("document.querySelector('#chat-model').value")
    playground.evaluate("document.querySelector('.assistant details').open = true")
    assert playground.evaluate(LOG) == log

    send_message(playground, "One", max_tokens=30, stop=first[:1])
    wait_replies(playground, 2)
    before = [int(note.split(" prompt tokens")[0].split()[-1]) for note in notes(playground)]
    assert before[1] > before[0] + 30

    playground.click("#chat-clear")
    assert playground.evaluate("document.querySelector('#chat-log').children.length") == 0
    assert playground.evaluate("sessionStorage.length") == 0


def test_errors_are_the_servers_messages(playground: Page) -> None:
    """The next request works."""
    send_message(playground, "Hello", max_tokens=3, stop="x" * 5000)
    playground.wait_for("document.querySelector('#chat-note').textContent.includes('4096')")
    playground.problems.clear()  # the browser itself names every 400

    send_message(playground, "Hello", max_tokens=3)
    wait_replies(playground, 1)


DROP = """() => {{
    const bytes = Uint8Array.from(atob("{data}"), each => each.charCodeAt(0)), dataTransfer = new DataTransfer();
    for (const [name, type] of [["cat.png", "image/png"], ["a.txt", "text/plain"], ["dog.png", "image/png"]])
        dataTransfer.items.add(new File([bytes], name, {{type}}));
    const event = new DragEvent("drop", {{dataTransfer, cancelable: true, bubbles: true}});
    document.querySelector("{place}").dispatchEvent(event);
    return event.defaultPrevented;
}}"""
PENDING = "document.querySelectorAll('#chat-pictures img').length"


def drop_pictures(page: Page, place: str = "#chat-form") -> None:
    """Drop two pictures and another file; the browser does not open them instead of the page."""
    data = base64.b64encode(pictures.png(20, 10)).decode()
    assert page.evaluate(f"({DROP.format(data=data, place=place)})()") is True
    page.wait_for(f"{PENDING} === 2")


def test_pictures_are_dropped_into_a_message(playground: Page, service: Service) -> None:
    """They can be removed before it is sent, stay in the conversation, and are shown again after a reload."""
    drop_pictures(playground)
    playground.click("#chat-pictures [title='Remove cat.png']")
    playground.wait_for(f"{PENDING} === 1")

    send_message(playground, "What?", max_tokens=5)
    wait_replies(playground, 1)
    send_message(playground, "Sure?", max_tokens=5)
    wait_replies(playground, 2)
    lengths = [int(note.rpartition(" prompt tokens")[0].rpartition(" ")[2]) for note in notes(playground)]
    assert lengths[1] > lengths[0] > 70
    assert playground.evaluate("document.querySelector('#chat-pictures').childElementCount") == 0

    playground.open("about:blank")
    playground.open(f"{service.url}/#playground")
    playground.wait_for("document.querySelectorAll('.user img').length === 1")


def test_pictures_need_no_text(playground: Page) -> None:
    """Nor a place in the form to be dropped at; without either, nothing is sent."""
    send_message(playground, "", max_tokens=5)
    assert playground.evaluate("document.querySelector('#chat-log').childElementCount") == 0

    drop_pictures(playground, place="body")
    send_message(playground, "", max_tokens=5)
    wait_replies(playground, 1)

    assert playground.evaluate("document.querySelectorAll('.user img').length") == 2
    content = playground.evaluate("JSON.parse(sessionStorage.getItem('tokenwire-conversation'))[0].content")
    assert content == ""


def test_files_that_are_dropped_on_the_status_do_nothing(playground: Page) -> None:
    """The browser would open them, in place of the page."""
    playground.evaluate("void (location.hash = '#status')")
    playground.wait_for("document.querySelector('#playground-view').hidden")

    data = base64.b64encode(pictures.png(20, 10)).decode()
    assert playground.evaluate(f"({DROP.format(data=data, place='body')})()") is True
    playground.evaluate("void (location.hash = '#playground')")
    send_message(playground, "Hello", max_tokens=5)
    wait_replies(playground, 1)

    assert playground.evaluate("document.querySelectorAll('.user img').length") == 0


def test_a_refused_message_is_kept(playground: Page) -> None:
    """With its pictures, to be changed and sent again; it is not part of the conversation."""
    drop_pictures(playground)
    send_message(playground, "Hello", max_tokens=3, stop="x" * 5000)
    playground.wait_for("document.querySelector('#chat-note').textContent.includes('4096')")
    playground.wait_for(IDLE)
    playground.problems.clear()  # the browser itself names every 400
    assert playground.evaluate("document.querySelector('#chat-text').value") == "Hello"
    assert playground.evaluate(PENDING) == 2
    assert playground.evaluate("document.querySelector('#chat-log').childElementCount") == 0

    playground.fill("#chat-stop", "")
    playground.click("#chat-send")
    wait_replies(playground, 1)
    assert playground.evaluate("document.querySelectorAll('.user img').length") == 2
