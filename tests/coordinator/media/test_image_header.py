"""Tests of picture headers."""

from contextlib import suppress

import pytest

from tests.coordinator.media import pictures
from tokenwire.coordinator.media.image_header import ImageHeader, read_header
from tokenwire.errors import InvalidRequest


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (pictures.png(640, 480), "PNG"),
        (pictures.jpeg(640, 480), "JPEG"),
        (pictures.gif(640, 480), "GIF"),
        (pictures.bmp(640, 480), "BMP"),
        (pictures.bmp(640, -480), "BMP"),
        *((pictures.webp(kind, 640, 480), "WebP") for kind in (b"VP8X", b"VP8L", b"VP8 ")),
    ],
)
def test_the_size_of_each_format_is_read_from_its_header(data: bytes, name: str) -> None:
    """Format and size come from the first bytes, before anything is decoded."""
    assert read_header(data) == ImageHeader(name, 640, 480)


def test_a_jpeg_with_two_sizes_counts_as_the_larger_one() -> None:
    """Decoders differ in which of several sizes they believe, so the largest one is checked."""
    small, large = pictures.jpeg(1, 1), pictures.jpeg(60_000, 60_000)
    size = large[large.index(b"\xff\xc2") : large.index(b"\xff\xda")]
    at = small.index(b"\xff\xda")
    assert read_header(small[:at] + size + small[at:]).pixels == 60_000**2


@pytest.mark.parametrize("data", [b"", b"<svg/>", b"%PDF-1.7", b"\x7fELF", b"II*\0", b"GIF88a1234567", b"RIFF....WAVE"])
def test_what_is_not_a_picture_is_refused_whatever_its_server_calls_it(data: bytes) -> None:
    """Only the bytes decide what is a picture."""
    with pytest.raises(InvalidRequest, match="Failed to load image"):
        read_header(data)


@pytest.mark.parametrize(
    "whole",
    [pictures.png(), pictures.jpeg(2, 3), pictures.gif(2, 3), pictures.bmp(2, 3), pictures.webp(b"VP8X", 2, 3)],
)
def test_every_truncated_header_is_refused_or_read_but_never_crashes(whole: bytes) -> None:
    """Of a cut picture the size is known, or an error says that it is broken."""
    for length in range(len(whole)):
        with suppress(InvalidRequest):
            assert read_header(whole[:length]).pixels == 6
