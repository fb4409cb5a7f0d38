"""The translation of chat requests."""

from typing import Any

import pytest

from tokenwire.coordinator.api.openai.chat_request import ChatCompletionRequest


@pytest.mark.parametrize(
    ("content", "echoed"),
    [
        ("said", "said"),
        (None, ""),
        (["one", "two"], "one\ntwo"),
        ([{"type": "text", "text": "one"}, "two", {"type": "text", "text": None}], "one\ntwo\n"),
    ],
)
def test_the_last_message_is_echoed_as_text(content: Any, echoed: str) -> None:
    """In any form of content."""
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": content}]
    assert ChatCompletionRequest.model_validate({"messages": messages, "echo": True}).echoed() == echoed
