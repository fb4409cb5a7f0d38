"""The page of /docs in a real browser, with a server that requires keys, and without other origins."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.page.browser import Page, chromium
from tests.processes import Service, simulated_service

CHAT = "[...document.querySelectorAll('.operation')].find(each => each.textContent.includes('/v1/chat/completionsC'))"
STATUS = f"{CHAT}.querySelector('[role=status]').textContent"
ANSWER = f"{CHAT}.querySelector('pre').textContent"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that requires a key."""
    folder = tmp_path_factory.mktemp("service")
    (folder / "keys").write_text("tenant sesame\n")
    options = ["--api-keys-file", str(folder / "keys")]
    with simulated_service(folder, "--sim-step-ms", "1", coordinator_options=options) as service:
        yield service


@pytest.fixture
def shown(tmp_path: Path, service: Service) -> Iterator[Page]:
    """The page, with the chat route opened. At the end it has sent no request elsewhere."""
    with chromium(tmp_path) as page:
        page.open(f"{service.url}/docs")
        page.wait_for("document.querySelectorAll('.operation').length > 20")
        page.evaluate(f"{CHAT}.open = true")
        page.wait_for(f"!!{CHAT}.querySelector('form')")
        yield page
        hosts = {urlsplit(url).netloc for url in page.requested if not url.startswith("data:")}
        assert hosts == {urlsplit(service.url).netloc}


def send_example(page: Page, **fields: object) -> None:
    """Add fields to the example and send it."""
    area = f"{CHAT}.querySelector('textarea')"
    page.evaluate(f"{area}.value = JSON.stringify(Object.assign(JSON.parse({area}.value), {_js(fields)}))")
    page.evaluate(f"{CHAT}.querySelector('form').requestSubmit()")


def _js(fields: dict[str, object]) -> str:
    return "{" + ", ".join(f"{name}: {str(value).lower()}" for name, value in fields.items()) + "}"


def test_it_shows_the_fields_and_responses_of_a_route(shown: Page) -> None:
    """Fields of the body, responses by status, and errors in this server's format."""
    text = shown.evaluate(f"{CHAT}.textContent")

    assert "max_tokens" in text
    assert "401" in text
    assert "HTTPValidationError" not in text  # FastAPI's, which this server never sends
    assert shown.problems == []


def test_a_request_is_tried_with_a_key(shown: Page) -> None:
    """Without a key the server's error is shown; with one the response, streamed or not."""
    send_example(shown)
    shown.wait_for(f"{STATUS}.startsWith('401')")
    assert "API key" in shown.evaluate(ANSWER)

    shown.fill("#api-key", "sesame")
    shown.evaluate("document.querySelector('#api-key').dispatchEvent(new Event('input'))")
    send_example(shown, max_tokens=3)
    shown.wait_for(f"{STATUS}.startsWith('200')")
    shown.wait_for(f"{ANSWER}.includes('chat.completion')")

    send_example(shown, stream=True)
    shown.wait_for(f"{ANSWER}.includes('[DONE]')")
