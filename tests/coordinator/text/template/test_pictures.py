"""Tests of how parts of messages name pictures."""

from typing import Any

import pytest

from tokenwire.coordinator.text.template.pictures import (
    NamedPicture,
    picture_of,
    reject_pictures,
    without_pictures,
)
from tokenwire.errors import InvalidRequest


@pytest.mark.parametrize(
    ("part", "named"),
    [
        ({"type": "image_url", "image_url": {"url": "data:x"}}, NamedPicture("data:x", None)),
        ({"type": "input_image", "image_url": "data:x", "uuid": 7}, NamedPicture("data:x", "7")),
        ({"image_url": "data:x"}, NamedPicture("data:x", None)),
        ({"type": "image_url", "image_url": None, "uuid": "cat"}, NamedPicture(None, "cat")),
        ({"type": "image_embeds", "image_embeds": "QUI="}, NamedPicture("QUI=", None, "image_embeds")),
        ({"image_embeds": {"a": "QUI="}}, NamedPicture({"a": "QUI="}, None, "image_embeds")),
        ({"type": "image_embeds", "uuid": "cat"}, NamedPicture(None, "cat", "image_embeds")),
        ({"type": "text", "text": "a"}, None),
        ("a", None),
    ],
)
def test_pictures_are_read_as_vllm_reads_them(part: Any, named: NamedPicture | None) -> None:
    """By their type, or without one by the field that they have; embeddings are a modality of their own."""
    assert picture_of(part, "part") == named


@pytest.mark.parametrize(
    ("part", "field"),
    [
        ({"type": "image_url", "image_url": {}}, "image_url"),
        ({"type": "image_url", "image_url": "data:x", "uuid": {}}, "uuid"),
        ({"type": "image_embeds"}, "image_embeds"),
        ({"type": "image_embeds", "image_embeds": [1.0]}, "image_embeds"),
    ],
)
def test_a_part_without_what_it_needs_is_named(part: Any, field: str) -> None:
    """By its place in the request."""
    with pytest.raises(InvalidRequest, match=rf"part\.{field} must"):
        picture_of(part, "part")


def test_pictures_beside_the_ids_of_a_prompt_are_named() -> None:
    """The ids say nothing of them, and the engine would see none."""
    picture = {"type": "image_url", "image_url": {"url": "data:x"}}
    reject_pictures(
        [{"role": "user", "content": ["a", {"type": "text", "text": "b"}]}, {"role": "user", "content": "c"}]
    )
    with pytest.raises(InvalidRequest, match=r"messages\[1\]\.content\[1\] is a picture"):
        reject_pictures([{"role": "user"}, {"role": "user", "content": ["a", picture]}])


def test_of_pictures_only_the_type_is_left_where_they_are_of_no_use() -> None:
    """All else stays as it is."""
    text, call = {"type": "text", "text": "a"}, {"role": "assistant", "tool_calls": [{"id": "1"}]}
    parts: list[Any] = [{"type": "image_url", "image_url": {"url": "data:"}}, text, {"image_embeds": {}}, "b"]

    kept = without_pictures([{"role": "user", "content": parts}, call, {"role": "user", "content": "c"}])

    assert kept[0] == {"role": "user", "content": [{"type": "image_url"}, text, {"type": None}, "b"]}
    assert kept[1:] == [call, {"role": "user", "content": "c"}]
    assert len(parts[0]) == 2
