"""Responses requests and tools shared by tests."""

from typing import Any

from tokenwire.coordinator.api.openai.chat_request import ChatCompletionRequest
from tokenwire.coordinator.api.responses.request import ResponsesRequest, responses_translator

TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": None}


CALL = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}", "status": "completed"}


def namespace(name: str) -> dict[str, Any]:
    """Return a namespace with one function."""
    return {"type": "namespace", "name": name, "description": "d", "tools": [TOOL]}


def responses_chat(given: Any = "Hi", **body: Any) -> ChatCompletionRequest:
    """Return the chat request that a request becomes."""
    return ResponsesRequest(input=given, **body).to_chat(responses_translator())


def user(content: Any) -> dict[str, Any]:
    """Return a user message."""
    return {"role": "user", "content": content}


PATCH = {"type": "custom", "name": "patch", "description": "Patches."}


SHELL = {"type": "local_shell"}
