"""Tests of how parts of messages name pictures."""

from typing import Any

import pytest

from tokenwire.coordinator.text.template.pictures import NamedPicture, picture_of, reject_pictures
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
