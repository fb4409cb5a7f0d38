"""Messages requests shared by tests."""

from typing import Any

from tokenwire.coordinator.api.anthropic.request import MessagesRequest, messages_translator
from tokenwire.coordinator.api.openai.chat_request import ChatCompletionRequest

HI = {"role": "user", "content": "Hi"}


def messages_chat(*messages: Any, system_first: bool = False, **body: Any) -> ChatCompletionRequest:
    """Return the chat request that a request becomes."""
    request = MessagesRequest(model="m", max_tokens=2000, messages=list(messages or [HI]), **body)
    return request.to_chat(messages_translator(), system_first)


def message_of(role: str, *content: dict[str, Any]) -> dict[str, Any]:
    """Return a message of content blocks."""
    return {"role": role, "content": list(content)}
