"""What a picture is, by its first bytes: its format and size. Nothing is decoded."""

import struct
from collections.abc import Callable

from tokenwire.errors import InvalidRequest
from tokenwire.process.value_class import value_class

_JPEG_SIZES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
"""Markers of the segments that have the size of a JPEG."""
_JPEG_BARE = frozenset({0x01, *range(0xD0, 0xD9)})
"""Markers without a segment."""


@value_class
class ImageHeader:
    """A picture's format and size in pixels."""

    format: str
    width: int
    height: int

    @property
    def pixels(self) -> int:
        """How many pixels it has when it is decoded."""
        return self.width * self.height


def read_header(data: bytes) -> ImageHeader:
    """Return the format and size of a PNG, JPEG, GIF, WebP or BMP. Raises InvalidRequest."""
    for magic, offset, name, read in _FORMATS:
        if data.startswith(magic, offset):
            try:
                size = read(data)
            except (struct.error, IndexError):
                size = None
            if size is None or min(size) < 1:
                raise InvalidRequest(f"Failed to load image: the {name} is truncated or broken.", param="messages")
            return ImageHeader(name, *size)
    raise InvalidRequest(
        "Failed to load image: cannot identify image file. Supported: PNG, JPEG, GIF, WebP and BMP.", param="messages"
    )


def _png(data: bytes) -> tuple[int, int] | None:
    return struct.unpack_from(">II", data, 16) if data[12:16] == b"IHDR" else None


def _gif(data: bytes) -> tuple[int, int]:
    width, height = struct.unpack_from("<HH", data, 6)
    return width, height


def _bmp(data: bytes) -> tuple[int, int]:
    header = struct.unpack_from("<I", data, 14)[0]
    width, height = struct.unpack_from("<HH" if header == 12 else "<ii", data, 18)
    return width, abs(height)


def _webp(data: bytes) -> tuple[int, int] | None:
    kind = data[12:16]
    if data[8:12] != b"WEBP":
        return None
    if kind == b"VP8X":
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(_exactly(data, 27, 3), "little")
    if kind == b"VP8L":
        bits = struct.unpack_from("<I", data, 21)[0]
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    return None


def _jpeg(data: bytes) -> tuple[int, int] | None:
    """Return the largest size that any segment states: which one a decoder believes is its own affair."""
    found: tuple[int, int] | None = None
    position = 2
    while position + 4 <= len(data):
        if data[position] != 0xFF:
            break
        marker = data[position + 1]
        if marker == 0xFF:
            position += 1
        elif marker in _JPEG_BARE:
            position += 2
        elif marker in (0xDA, 0xD9):  # the pixels, or the end
            break
        else:
            length = struct.unpack_from(">H", data, position + 2)[0]
            if marker in _JPEG_SIZES:
                height, width = struct.unpack_from(">HH", data, position + 5)
                if found is None or width * height > found[0] * found[1]:
                    found = width, height
            position += 2 + max(2, length)
    return found


def _exactly(data: bytes, start: int, count: int) -> bytes:
    data[start + count - 1]  # an IndexError if there are fewer
    return data[start : start + count]


_FORMATS: tuple[tuple[bytes, int, str, Callable[[bytes], tuple[int, int] | None]], ...] = (
    (b"\x89PNG\r\n\x1a\n", 0, "PNG", _png),
    (b"\xff\xd8\xff", 0, "JPEG", _jpeg),
    (b"GIF87a", 0, "GIF", _gif),
    (b"GIF89a", 0, "GIF", _gif),
    (b"RIFF", 0, "WebP", _webp),
    (b"BM", 0, "BMP", _bmp),
)
