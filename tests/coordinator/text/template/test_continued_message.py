"""Final messages that replies continue."""

from typing import Any

import pytest

from tests.coordinator.text.template.rendering import ECHO, HELLO, render_messages
from tokenwire.errors import InvalidRequest


@pytest.mark.parametrize("final", ["one, two, ", "one", "", " padded\n"])
@pytest.mark.parametrize("trim", [False, True])
def test_a_message_can_be_continued(final: str, trim: bool) -> None:
    """The prompt ends with the final message's last character, or with its last word if the template trims."""
    source = "{% for m in messages %}<{{ m.role }}>{{ m.content" + (" | trim" if trim else "") + " }}</>\n{% endfor %}"
    messages = [*HELLO, {"role": "assistant", "content": final}]
    text = render_messages(source, messages, add_generation_prompt=False, continue_final_message=True)
    assert text == "<user>hi</>\n<assistant>" + (final.strip() if trim else final)
    assert messages[-1]["content"] == final


def test_a_message_of_parts_can_be_continued() -> None:
    """In the openai format the last text part is continued."""
    messages = [{"role": "assistant", "content": [{"type": "text", "text": "a "}, {"type": "image"}]}]
    source = "{% for p in messages[0].content %}{{ p.text }}{% endfor %}|end"
    assert render_messages(source, messages, add_generation_prompt=False, continue_final_message=True) == "a "


@pytest.mark.parametrize("content", [None, [], [{"type": "image"}]])
def test_a_message_without_text_cannot_be_continued(content: Any) -> None:
    """Nor can one that the template omits."""
    options = {"add_generation_prompt": False, "continue_final_message": True}
    with pytest.raises(InvalidRequest, match="no text"):
        render_messages(ECHO, [{"role": "assistant", "content": content}], **options)
    with pytest.raises(InvalidRequest, match="not an accepted field in the chat_template"):
        render_messages("{{ messages[0].role }}", HELLO, **options)
    with pytest.raises(InvalidRequest, match="drops or changes"):
        render_messages("{{ messages[0].content | length }}", HELLO, **options)
