"""Requests with media become JSON."""

import base64
import json
from typing import Any

import pytest

from tokenwire.coordinator.fleet.transport.vllm_http.media_body import MediaPart, body_with_media


async def body_as_read(*parts: MediaPart) -> Any:
    """Return a body as its server reads it."""
    return json.loads(b"".join([piece async for piece in body_with_media([b'{"token_ids": ', b"[1]"], parts)]))


@pytest.mark.parametrize("size", [0, 1, 3 * 64 * 1024 - 1, 3 * 64 * 1024, 400_001])
async def test_the_bytes_of_an_item_are_a_data_url(size: int) -> None:
    """However they are cut."""
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)

    (part,) = (await body_as_read(MediaPart("a", data)))["content_parts"]
    assert (part["type"], part["uuid"]) == ("image_url", "a")
    assert part["url"].startswith("data:image/x;base64,")
    assert base64.b64decode(part["url"].partition(",")[2], validate=True) == data


async def test_an_item_that_the_server_has_is_named_alone() -> None:
    """In its place among the others."""
    body = await body_as_read(MediaPart("a", None), MediaPart("b", b"xyz"), MediaPart("c", None))

    assert body["token_ids"] == [1]
    assert [(part["uuid"], part["url"] is None) for part in body["content_parts"]] == [
        ("a", True),
        ("b", False),
        ("c", True),
    ]
