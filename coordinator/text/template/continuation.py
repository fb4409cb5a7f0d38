"""Finds where a final message to be continued ends in the prompt, with a tag as in transformers."""

from tokenwire.coordinator.text.template.messages import Message
from tokenwire.errors import InvalidRequest

_CONTINUE_TAG = "CONTINUE_FINAL_MESSAGE_TAG "


def mark(message: Message, source: str) -> tuple[str, Message]:
    """Append a tag to the message's text; return the text and the tagged message. Raises InvalidRequest."""
    content = message.get("content")
    if "content" not in source:
        raise InvalidRequest("The chat template does not use content, so no message can be continued.")
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
    end = text.rindex(tag)
    # A template that trims content has also trimmed the tag's blank, and would have trimmed the text's.
    return text[:end] if text.startswith(_CONTINUE_TAG, end) else text[:end].rstrip()
