"""Tests of the bytes of embeddings in requests."""

import base64
from typing import Any

import pytest

from tokenwire.coordinator.media.embeddings import embedding_bytes, encoded_chars
from tokenwire.errors import InvalidRequest

TORCH, NUMPY = b"PK\x03\x04 of torch", b"\x93NUMPY of numpy"


def base64_of(data: bytes) -> str:
    """Return bytes as text."""
    return base64.b64encode(data).decode()


def test_a_tensor_is_passed_on_as_it_is() -> None:
    """Its bytes are opaque here."""
    assert embedding_bytes(base64_of(TORCH)) == TORCH
    assert encoded_chars(base64_of(TORCH)) == len(base64_of(TORCH))


def test_tensors_by_name_are_one_piece_whatever_their_order() -> None:
    """A line says how long each is, and has the numbers; equal embeddings have equal bytes."""
    fields = {"image_embeds": base64_of(TORCH), "image_grid_thw": [1, 4, 6], "a": base64_of(NUMPY)}
    made = embedding_bytes(fields)
    assert made == b'{"a":15,"image_embeds":13,"image_grid_thw":[1,4,6]}\n' + NUMPY + TORCH
    assert embedding_bytes(dict(reversed(fields.items()))) == made
    assert encoded_chars(fields) == len(base64_of(TORCH) + base64_of(NUMPY))


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("!!!!", "Non-base64 digit found"),
        (base64_of(b"\x89PNG\r\n\x1a\n"), "torch.save or numpy.save"),
        (base64_of(b"{}\n"), "torch.save or numpy.save"),
        ({}, "1 to 8 fields"),
        ({"a b": base64_of(TORCH)}, "1 to 8 fields"),
        ({str(number): [1] for number in range(9)}, "1 to 8 fields"),
        ({"a": None}, r"image_embeds\.a"),
        ({"a": [True]}, r"image_embeds\.a"),
        ({"a": [1] * 65}, "at most 64 numbers"),
    ],
)
def test_what_is_no_tensor_is_refused(source: Any, reason: str) -> None:
    """A picture is no embedding, so that bytes have one kind."""
    with pytest.raises(InvalidRequest, match=reason):
        embedding_bytes(source)
