"""The translation of chat requests."""

from typing import Any

import pytest
from pydantic import ValidationError

from tokenwire.coordinator.api.fields.common import RequestFields
from tokenwire.coordinator.api.openai.chat_request import ChatCompletionRequest
from tokenwire.coordinator.api.openai.completions import CompletionRequest


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


@pytest.mark.parametrize(
    ("model", "nullable"),
    [(ChatCompletionRequest, {"n": True, "echo": False}), (CompletionRequest, {"n": False, "echo": True})],
)
def test_null_is_accepted_as_in_vllm(model: type[RequestFields], nullable: dict[str, bool]) -> None:
    """This differs from route to route; a request id is never null."""
    for name, takes in {**nullable, "request_id": False, "session_id": True}.items():
        given: dict[str, Any] = {"messages": [], name: None}
        if takes:
            model.model_validate(given)
            continue
        with pytest.raises(ValidationError, match=name):
            model.model_validate(given)
