"""Requests of streams with a number: one of a few prompts each, so that equal numbers have equal replies."""

import base64
from typing import Any

from tests.coordinator.media import pictures

PROMPTS = 20
_TEXTS = 16
_STREAMED = {
    "model": "simulated",
    "temperature": 0,
    "stream": True,
    "stream_options": {"include_usage": True},
    "return_token_ids": True,
}


def completion(number: int, tokens: int) -> dict[str, Any]:
    """Return a completion."""
    return {**_STREAMED, "prompt": f"Tell me story number {number % PROMPTS}.", "max_tokens": tokens}


def chat_with_picture(number: int, tokens: int) -> dict[str, Any]:
    """Return a chat about a picture of its own."""
    picture = base64.b64encode(pictures.png(20, 10, number % PROMPTS)).decode()
    content = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture}"}},
    ]
    return {**_STREAMED, "messages": [{"role": "user", "content": content}], "max_tokens": tokens}


def batch(number: int, tokens: int) -> dict[str, Any]:
    """Return a batch of texts to embed, which has no tokens of a reply."""
    del tokens
    texts = [f"text {index} of batch {number % PROMPTS} " * (1 + index % 5) for index in range(_TEXTS)]
    return {"model": "simulated", "input": texts, "encoding_format": "base64"}
