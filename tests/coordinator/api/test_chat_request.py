"""What a chat request becomes."""

from typing import Any

import pytest

from coordinator.api.chat_request import ChatCompletionRequest


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
    """Whichever form its content has."""
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": content}]
    assert ChatCompletionRequest.model_validate({"messages": messages, "echo": True}).echoed() == echoed
