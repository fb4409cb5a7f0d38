"""What tests do in the playground."""

from tests.page.browser import Page

IDLE = "!document.querySelector('#chat-send').disabled"
"""True when no reply is being streamed."""


def send_message(page: Page, text: str, max_tokens: int, stop: str = "", tokens: bool = False) -> None:
    """Send a message, with the keyboard."""
    page.evaluate("void (location.hash = '#playground')")
    page.wait_for("!document.querySelector('#playground-view').hidden")
    page.fill("#chat-max", str(max_tokens))
    page.fill("#chat-stop", stop)
    page.evaluate(f"document.querySelector('#chat-tokens').checked = {str(tokens).lower()}")
    page.fill("#chat-text", text)
    page.evaluate("document.querySelector('#chat-text').focus()")
    page.type_key("Enter")


def wait_replies(page: Page, count: int) -> None:
    """Wait until that many replies are complete."""
    page.wait_for(f"{IDLE} && document.querySelectorAll('.assistant > .note').length === {count}")


def notes(page: Page) -> list[str]:
    """Return the summary of each reply."""
    found: list[str] = page.evaluate(
        "[...document.querySelectorAll('.assistant > .note')].map(each => each.textContent)"
    )
    return found
