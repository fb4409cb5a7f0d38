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


def test_a_jpeg_with_very_many_scans_is_refused() -> None:
    """Thirty bytes for each keep a decoder busy for as long as all of its pixels take."""
    once = pictures.jpeg(4000, 4000)
    scan = once[once.index(b"\xff\xda") : -2]
    assert read_header(once[:-2] + 60 * scan + once[-2:]).width == 4000

    with pytest.raises(InvalidRequest, match="has 10001 scans, and may have 64"):
        read_header(once[:-2] + 10_000 * scan + once[-2:])


def test_what_stands_behind_a_jpeg_is_no_scan() -> None:
    """Phones put a video there; restart markers between its pixels end nothing."""
    once, video = pictures.jpeg(640, 480), 100 * b"moov\xff\xda\0\x02"
    assert read_header(once + video).width == 640
    assert read_header(once[:-2] + 20_000 * b"pixels\xff\xd0" + once[-2:] + video).width == 640


@pytest.mark.parametrize("hiding", [b"\xff\xfe\0\x04\xff\xd9", b"\xff\x02\xff\xf0", b"\xff\xfe\0\x02" * 20_000])
def test_no_scan_of_a_jpeg_hides(hiding: bytes) -> None:
    """Neither behind the end of a picture in a comment, nor in what only some take for a segment, nor far behind."""
    once = pictures.jpeg(640, 480)
    scan = once[once.index(b"\xff\xda") : -2]
    with pytest.raises(InvalidRequest, match=r"scans, and may have 64"):
        read_header(once[:-2] + hiding + 100 * scan + once[-2:])


def hidden(*parts: bytes) -> bytes:
    """Return a JPEG of 1 x 1 pixels with something before its size."""
    small = pictures.jpeg(1, 1)
    return small[:2] + b"".join(parts) + small[2:]


LARGE = pictures.jpeg_size(60_000, 60_000)
HIDING = [
    pytest.param(hidden(b"\xff\x00\x00\x12", LARGE), id="a JPEG's size after what is no marker"),
    pytest.param(hidden(b"\xff\xd0junk", LARGE), id="a JPEG's size after what decoders pass over"),
    pytest.param(pictures.gif_with_frames((1, 1), (0, 0, 60_000, 60_000)), id="a GIF's frame beyond its screen"),
    pytest.param(
        pictures.gif_with_frames((9, 9), (0, 0, 9, 9), (59_000, 59_000, 1000, 1000)), id="a GIF's later frame"
    ),
]


@pytest.mark.parametrize("data", HIDING)
def test_a_size_that_decoders_find_is_found(data: bytes) -> None:
    """What hides a size from a reader of segments and screens hides it from no decoder."""
    assert read_header(data).pixels == 60_000**2


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(pictures.png_with_two_headers(60_000, 60_000), id="a PNG with two headers"),
        pytest.param(
            pictures.png()[:33] + b"\0\0\0\0tEXt\0\0\0\0" * 10_000 + pictures.png()[33:], id="very many chunks"
        ),
        pytest.param(hidden(b"\xff\xd9", LARGE), id="a JPEG that ends before its pixels"),
        pytest.param(hidden(b"\xff\xf0\x00\x12", LARGE), id="a marker that decoders read differently"),
        pytest.param(hidden(b"\xff" * 70_000), id="very much that is no segment"),
        pytest.param(hidden(b"\xff\xd0" * 10_000), id="very many markers"),
        pytest.param(pictures.gif(1, 1) + b"!\xf9\0", id="an extension that decoders read differently"),
        pytest.param(pictures.gif(1, 1) + b"!\xff\x0bNETSCAPE2.0\0", id="another one"),
        pytest.param(pictures.gif(1, 1) + b"!\xfe" + b"\x01a" * 20_000, id="very many blocks"),
        pytest.param(pictures.bmp(640, -(2**25)), id="a BMP whose rows decoders count differently"),
    ],
)
def test_what_decoders_could_read_differently_is_refused(data: bytes) -> None:
    """And what would make reading it slow."""
    with pytest.raises(InvalidRequest, match="truncated or broken"):
        read_header(data)


def test_frames_within_the_screen_leave_its_size() -> None:
    """Of an animation, with comments and tables of colours."""
    assert read_header(pictures.gif_with_frames((9, 8), (1, 1, 5, 5), (0, 0, 9, 8))) == ImageHeader("GIF", 9, 8)


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
