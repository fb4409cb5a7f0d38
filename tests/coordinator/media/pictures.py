"""Pictures for tests, made without a library: the smallest of each format."""

import struct
import zlib


def png(width: int = 2, height: int = 3, shade: int = 0) -> bytes:
    """Return a gray picture that any decoder reads."""
    rows = b"".join(b"\0" + bytes([shade]) * width for _ in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def huge_png(width: int, height: int) -> bytes:
    """Return the first bytes of a picture that says it is that large."""
    header = b"IHDR" + struct.pack(">II", width, height) + png()[24:29]
    return png()[:12] + header + struct.pack(">I", zlib.crc32(header)) + png()[33:]


def png_with_two_headers(width: int, height: int) -> bytes:
    """Return the first bytes of a picture that says that it is small, and before its pixels that it is that large."""
    small = png()
    return small[:33] + huge_png(width, height)[8:33] + small[33:]


def gif_with_frames(screen: tuple[int, int], *frames: tuple[int, int, int, int]) -> bytes:
    """Return a GIF with comments between frames, which are left, top, width and height; each has a table of colours."""
    between = b"!\xfe\x02,,\x00" + b"junk" + b"!\xf9\x04" + bytes(5)
    parts = (
        between + b"," + struct.pack("<HHHHB", *each, 0x80) + bytes(6) + b"\x02\x02\x4c\x01\x00" for each in frames
    )
    return b"GIF89a" + struct.pack("<HHBBB", *screen, 0x81, 0, 0) + bytes(12) + b"".join(parts) + b";"


def jpeg_size(width: int, height: int) -> bytes:
    """Return the segment of a JPEG that states its size."""
    return b"\xff\xc2" + struct.pack(">HBHHB", 11, 8, height, width, 1) + b"\x01\x11\x00"


def jpeg(width: int, height: int) -> bytes:
    """Return a JPEG without pixels, with a comment, a fill byte and a restart marker before its size."""
    comment = b"\xff\xfe" + struct.pack(">H", 2 + 4) + b"text"
    return b"\xff\xd8" + comment + b"\xff\xd0" + b"\xff" + jpeg_size(width, height) + b"\xff\xda\x00\x02" + b"\xff\xd9"


def gif(width: int, height: int) -> bytes:
    """Return the header of a GIF."""
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\0\0\0"


def bmp(width: int, height: int) -> bytes:
    """Return the header of a BMP, whose height may be negative."""
    return b"BM" + bytes(12) + struct.pack("<Iii", 40, width, height) + bytes(28)


def webp(kind: bytes, width: int, height: int) -> bytes:
    """Return the header of a WebP of one of its kinds."""
    if kind == b"VP8X":
        body = bytes(4) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    elif kind == b"VP8L":
        body = b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14)
    else:
        body = bytes(3) + b"\x9d\x01\x2a" + struct.pack("<HH", width, height)
    return b"RIFF" + bytes(4) + b"WEBP" + kind + struct.pack("<I", len(body)) + body
