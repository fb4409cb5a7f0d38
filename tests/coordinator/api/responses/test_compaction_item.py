"""Compaction items: a summary that clients keep and send back."""

import base64
import hashlib
from typing import Any

import pytest

from tests.coordinator.api.responses.requests import responses_chat, user
from tokenwire.coordinator.api.responses.compaction_item import MAX_CHARS, compaction_item, summary_message
from tokenwire.errors import InvalidRequest

ITEM = compaction_item("The river is 2,850 km long: “Дунай” 🎉.")
CONTENT = ITEM["encrypted_content"]


def test_an_item_is_a_message_of_the_user_with_the_summary() -> None:
    """At its place among the others, whether its id is sent back or not."""
    sent = {name: value for name, value in ITEM.items() if name != "id"}
    request = responses_chat([user("Hi."), sent, user("Go on.")])

    (first, summary, last) = request.messages
    assert (first["content"], last["content"]) == ("Hi.", "Go on.")
    assert summary["role"] == "user"
    assert summary["content"].endswith("The river is 2,850 km long: “Дунай” 🎉.")
    assert summary == summary_message(ITEM, "input[1]")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "is required"),
        (7, "is required"),
        ("gAAAAABo_of_another_server", "is not of a /v1/responses/compact of tokenwire"),
        ("", "is not of a /v1/responses/compact of tokenwire"),
        (CONTENT[:-4], "is damaged"),
        (CONTENT[:-3], "is damaged"),
        (CONTENT[:20] + "A" + CONTENT[21:], "is damaged"),
        (CONTENT + "ü", "is damaged"),
        ("tokenwire.1.", "is damaged"),
        (CONTENT + "A" * MAX_CHARS, f"characters, more than {MAX_CHARS}"),
    ],
)
def test_other_content_is_named(content: Any, said: str) -> None:
    """By an error with its place."""
    with pytest.raises(InvalidRequest, match=rf"input\[1\]\.encrypted_content.*{said}") as raised:
        responses_chat([user("Hi."), {**ITEM, "encrypted_content": content}])
    assert raised.value.param == "input"


def test_content_that_is_no_text_is_damaged() -> None:
    """Though its digest is right, which anybody can compute."""
    packed = hashlib.sha256(b"\xff").digest()[:8] + b"\xff"
    content = f"tokenwire.1.{base64.urlsafe_b64encode(packed).decode()}"
    with pytest.raises(InvalidRequest, match="is damaged"):
        summary_message({"encrypted_content": content}, "input[0]")


def test_the_longest_summary_can_be_sent_back() -> None:
    """A longer one is no item."""
    longest = "x" * (MAX_CHARS // 4 * 3 - 20)
    assert summary_message(compaction_item(longest), "input[0]")["content"].endswith(longest)
    with pytest.raises(ValueError, match="bytes"):
        compaction_item("x" * MAX_CHARS)
