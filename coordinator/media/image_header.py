"""What a picture is, by its headers: its format and size, no smaller than decoders see it. Nothing is decoded.

What decoders read differently from each other, or from what the format allows, is broken.
"""

import re
import struct
from collections.abc import Callable, Iterator

from tokenwire.errors import InvalidRequest
from tokenwire.process.value_class import value_class

_JPEG_SIZES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
"""Markers of the segments that have the size of a JPEG."""
_JPEG_BARE = frozenset({0x01, *range(0xD0, 0xD9)})
"""Markers without a segment."""
_JPEG_OTHERS = frozenset({0xC4, 0xCC, 0xDB, 0xDC, 0xDD, *range(0xE0, 0xF0), 0xFE})
"""Markers of other segments. Of any further marker decoders think differently."""
_JPEG_MARKER = re.compile(rb"\xff([^\0\xff])", re.DOTALL)
_JPEG_PART = re.compile(rb"\xff([^\0\1\xd0-\xd7\xff])", re.DOTALL)
"""Behind the first pixels, without those that pixels have between them."""
_JPEG_SCAN, _JPEG_END = 0xDA, 0xD9
_MOST_SCANS = 64
"""Of a JPEG: encoders write about ten. Each takes as long as its pixels, however few bytes it has."""
_WINDOW = 2**20
"""Bytes that are searched at once, while no other thread runs."""
_MOST_PADDING = 2**16
"""Bytes before the pixels of a JPEG that are in no segment."""
_GIF_TABLE, _GIF_TABLE_SIZE = 0x80, 7
"""Bits of a GIF's flags: whether there is a table of colours, and the logarithm of its size, less one."""
_GIF_COMMENT, _GIF_APPLICATION = 0xFE, 0xFF
_MOST_UPWARDS = 2**24
"""Of a BMP's rows where their number is negative: decoders take a lower one for a large positive one."""
_MOST_PARTS = 10_000
"""Chunks, segments or blocks before the pixels."""
_BYTES_PER_BLOCK = 64
"""Fewer in the blocks of a GIF's pixels, in the mean, would make reading it slow: encoders write 255."""


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
    """Return the size of the header, which must be the first chunk, and the only one before the pixels."""
    if data[12:16] != b"IHDR":
        return None
    position = 8
    for _ in range(_MOST_PARTS):
        length, kind = struct.unpack_from(">I4s", data, position)
        if kind == b"IDAT":
            return struct.unpack_from(">II", data, 16)
        if kind == b"IHDR" and position != 8:
            return None
        position += 12 + length
    return None


def _gif(data: bytes) -> tuple[int, int] | None:
    """Return the size of the screen, as far as frames extend it."""
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    steps = iter(range(_MOST_PARTS + len(data) // _BYTES_PER_BLOCK))
    position = 13 + _gif_table(flags)
    for _ in steps:
        kind = data[position : position + 1]
        position += 1
        if kind in (b"", b";"):
            return width, height
        if kind == b",":
            left, top, wide, high, flags = struct.unpack_from("<HHHHB", data, position)
            width, height = max(width, left + wide), max(height, top + high)
            position = _after_blocks(data, position + 10 + _gif_table(flags), steps)
        elif kind == b"!":
            if not _is_plain_extension(data, position):
                return None
            position = _after_blocks(data, position + 1, steps)
    return None


def _gif_table(flags: int) -> int:
    return 6 << (flags & _GIF_TABLE_SIZE) if flags & _GIF_TABLE else 0


def _after_blocks(data: bytes, position: int, steps: Iterator[int]) -> int:
    """Return where a GIF goes on after blocks of data."""
    for _ in steps:
        size = data[position] if position < len(data) else 0
        position += 1 + size
        if not size:
            break
    return position


def _is_plain_extension(data: bytes, position: int) -> bool:
    """Return whether an extension of a GIF ends for all decoders where its blocks do: Pillow skips an empty one."""
    label, size = data[position], data[position + 1]
    if label == _GIF_APPLICATION and data.startswith(b"NETSCAPE2.0", position + 2):
        return data[position + 2 + size] > 0
    return size > 0 or label == _GIF_COMMENT


def _bmp(data: bytes) -> tuple[int, int] | None:
    header = struct.unpack_from("<I", data, 14)[0]
    width, height = struct.unpack_from("<HH" if header == 12 else "<ii", data, 18)
    return (width, abs(height)) if height >= -_MOST_UPWARDS else None


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
    """Return the largest size that any segment states: which one a decoder believes is its own affair.

    As decoders do, it passes over what is no marker.
    """
    width = height = 0
    position, padding = 2, _MOST_PADDING
    for _ in range(_MOST_PARTS):
        found = _JPEG_MARKER.search(data, position, position + padding)
        if found is None:
            return None
        padding -= found.start() - position
        (marker,), position = found[1], found.end()
        if marker == _JPEG_SCAN:
            _check_scans(data, position)
            return width, height
        if marker in _JPEG_BARE:
            continue
        if marker in _JPEG_SIZES:
            high, wide = struct.unpack_from(">HH", data, position + 3)
            if wide * high >= width * height:
                width, height = wide, high
        elif marker not in _JPEG_OTHERS:
            return None
        position += max(2, struct.unpack_from(">H", data, position)[0])
    return None


def _check_scans(data: bytes, start: int) -> None:
    """Check how often the pixels of a JPEG are gone through, from behind the first scan's marker on."""
    scans = 1 + data.count(bytes((0xFF, _JPEG_SCAN)), start)
    if scans > _MOST_SCANS:  # or a video behind the picture has such bytes, as phones add
        scans = min(scans, _scans(data, start))
    if scans > _MOST_SCANS:
        message = f"Failed to load image: the JPEG has {scans} scans, and may have {_MOST_SCANS}."
        raise InvalidRequest(message, param="messages")


def _scans(data: bytes, start: int) -> int:
    """Return how many scans a JPEG has up to its end, with one that starts here; very many if that is far.

    What decoders may not take for a segment is not passed over, so that no scan hides in it.
    """
    position, scans = start + int.from_bytes(data[start : start + 2], "big"), 1
    for _ in range(_MOST_PARTS):
        found = _JPEG_PART.search(data, position, position + _WINDOW)
        if found is None and position + _WINDOW < len(data):
            position += _WINDOW - 1
            continue
        if found is None or found[1][0] == _JPEG_END:
            return scans
        (marker,), position = found[1], found.end()
        scans += marker == _JPEG_SCAN
        if marker in _JPEG_OTHERS or marker in _JPEG_SIZES or marker == _JPEG_SCAN:
            position += int.from_bytes(data[position : position + 2], "big")
    return len(data)


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
