"""The hashes of a prompt find where a later one leaves it, and have none of its text."""

from typing import Any

import pytest

from tokenwire.coordinator.history.prompt_digest import digest_prompt, text_at_difference
from tokenwire.coordinator.text.template.pictures import PicturePart

FORM: Any = "string"


def messages_of(*texts: str) -> list[dict[str, Any]]:
    """Return messages of users."""
    return [{"role": "user", "content": text} for text in texts]


def test_messages_are_compared_from_the_first_on() -> None:
    """What is equal at its place counts too: an edit leaves the rest as it was."""
    first = digest_prompt(messages_of("a", "b", "c"), FORM, [])
    edited = digest_prompt(messages_of("a", "x", "c"), FORM, [], [first])
    longer = digest_prompt(messages_of("a", "b", "c", "d"), FORM, [], [first])

    assert edited.alike(first) == (1, 2)
    assert longer.alike(first) == (3, 3)
    assert longer.pieces[0] is first.pieces[0]


def test_content_in_parts_is_its_text() -> None:
    """Clients that send the same text in another form have changed nothing."""
    text = digest_prompt(messages_of("hello"), FORM, [])
    parts = digest_prompt([{"role": "user", "content": [{"type": "text", "text": "hello"}]}], FORM, [], [text])

    assert parts.alike(text) == (1, 1)


@pytest.mark.parametrize("place", [0, 1, 63, 64, 5000, 9999])
def test_the_difference_is_shown(place: int) -> None:
    """The shown text has the first character that differs, and is short."""
    old = "." * 10_000
    new = messages_of(f"{old[:place]}X{old[place + 1 :]}")
    before, after = (digest_prompt(messages, FORM, []).pieces[0] for messages in (messages_of(old), new))
    shown = text_at_difference(new[0], 0, FORM, after, before)

    assert "X" in shown
    assert len(shown) <= 160


def test_a_replaced_picture_is_another_message() -> None:
    """Its text has only a placeholder, which is equal for all; what is shown is where the message begins."""
    old, new = (
        [{"role": "user", "content": ["What?" * 100, PicturePart("<image>", {}, data)]}, *messages_of("b")]
        for data in (b"cat", b"dog")
    )
    first = digest_prompt(old, FORM, [])
    edited = digest_prompt(new, FORM, [], [first])

    assert digest_prompt(old, FORM, []).alike(first) == (2, 2)
    assert edited.alike(first) == (0, 1)
    assert text_at_difference(new[0], 0, FORM, edited.pieces[0], first.pieces[0]).startswith("<image>\nWhat?")


def test_ids_are_compared_in_blocks() -> None:
    """Only whole blocks count, as in the caches of engines."""
    one = digest_prompt([], FORM, list(range(200)))
    other = digest_prompt([], FORM, [*range(130), 7, 7])

    assert one.common_tokens(other) == 128


def test_a_long_prompt_is_kept_in_little() -> None:
    """A tenth of a text is enough."""
    digest = digest_prompt(messages_of("word " * 50_000), FORM, [1] * 70_000)

    assert digest.size_bytes < 45_000
