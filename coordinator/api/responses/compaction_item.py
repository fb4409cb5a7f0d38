"""The item that takes the place of a conversation: a summary, in a form that clients keep as it is and send back.

It is not encrypted: a client learns nothing from it that it did not send or may not read, and may write one itself, as
it may write any message. Its digest tells damaged items from whole ones.
"""

import hashlib
import uuid
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Any

from tokenwire.coordinator.text.template.messages import ChatMessage
from tokenwire.errors import InvalidRequest

MAX_CHARS = 1024 * 1024
"""Of an item's content; a summary may have three quarters as many bytes."""

_MARK = "tokenwire.1."
_DIGEST_BYTES = 8
_INTRODUCTION = (
    "What follows is a summary of this conversation until now, which takes the place of all that was said and done. "
    "Go on from it.\n\n"
)


def compaction_item(summary: str) -> dict[str, Any]:
    """Return the item of a summary. Raises ValueError for one that is too long."""
    text = summary.encode()
    content = _MARK + urlsafe_b64encode(_digest(text) + text).decode()
    if len(content) > MAX_CHARS:
        raise ValueError(f"the summary has {len(text)} bytes")
    return {"id": f"cmp_{uuid.uuid4().hex}", "type": "compaction", "encrypted_content": content}


def summary_message(item: Mapping[str, Any], where: str) -> ChatMessage:
    """Return the message that an item is to the model. Raises InvalidRequest."""
    return {"role": "user", "content": _INTRODUCTION + _summary(item.get("encrypted_content"), where)}


def _summary(content: object, where: str) -> str:
    field = f"{where}.encrypted_content"
    if not isinstance(content, str):
        raise InvalidRequest(f"{field} is required and must be a string.", param="input")
    if len(content) > MAX_CHARS:
        raise InvalidRequest(f"{field} has {len(content)} characters, more than {MAX_CHARS}.", param="input")
    if not content.startswith(_MARK):
        raise InvalidRequest(
            f"{field} is not of a /v1/responses/compact of tokenwire, and no other can be read here.", param="input"
        )
    try:
        packed = urlsafe_b64decode(content[len(_MARK) :])
        text = packed[_DIGEST_BYTES:].decode()
        if packed[:_DIGEST_BYTES] != _digest(packed[_DIGEST_BYTES:]):
            raise ValueError("another digest")
    except ValueError as error:
        raise InvalidRequest(
            f"{field} is damaged: send it as /v1/responses/compact returned it.", param="input"
        ) from error
    return text


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()[:_DIGEST_BYTES]
