"""A final message that the reply continues: marked before the template renders it, and cut off behind its text."""

from collections.abc import Mapping
from typing import Any

from tokenwire.coordinator.text.template.messages import ChatMessage
from tokenwire.errors import InvalidRequest

# Marks in the prompt where a final message to be continued ends, as in transformers.
_CONTINUE_TAG = "CONTINUE_FINAL_MESSAGE_TAG "
_NO_CONTENT = '"content" but this is not an accepted field in the chat_template'


def check_ending(values: Mapping[str, Any]) -> None:
    """Check that a prompt is to end in one way. Raises InvalidRequest."""
    if values["continue_final_message"] and values["add_generation_prompt"]:
        raise InvalidRequest(
            "Cannot set both `continue_final_message` and `add_generation_prompt` to True.",
            param="continue_final_message",
        )


def mark(message: ChatMessage, source: str) -> tuple[str, ChatMessage]:
    """Append a tag to the message's text; return the text and the tagged message. Raises InvalidRequest."""
    content = message.get("content")
    if "content" not in source:
        raise InvalidRequest(f"continue_final_message is set to {_NO_CONTENT}")
    if isinstance(content, str):
        return content, message | {"content": content + _CONTINUE_TAG}
    parts = [dict(part) for part in content or ()]
    for part in reversed(parts):
        if "text" in part:
            text = part["text"]
            part["text"] = text + _CONTINUE_TAG
            return text, message | {"content": parts}
    raise InvalidRequest("continue_final_message is set, but the final message has no text.", param="messages")


def cut_at_mark(text: str, final: str) -> str:
    """Return the rendered text up to the message's end. Raises InvalidRequest if that cannot be found."""
    tag = _CONTINUE_TAG.strip()
    if tag not in text or final.strip() not in text:
        raise InvalidRequest(
            "continue_final_message is set, but the chat template drops or changes the final message.",
            param="continue_final_message",
        )
    end = text.rindex(tag)  # a template that trims content has also trimmed the tag's blank, as it would the text's
    return text[:end] if text.startswith(_CONTINUE_TAG, end) else text[:end].rstrip()
