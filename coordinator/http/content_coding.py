"""Decompresses bodies of requests in pieces: each counts before there is another."""

import zlib
from collections.abc import Callable, Iterator
from typing import Protocol

from tokenwire.coordinator.http.backpressure import SMALL_BYTES, BodyMemory
from tokenwire.errors import InvalidRequest, TooLarge, UnsupportedCoding

ACCEPTED_CODINGS = "gzip, zstd"
CODING_HEADER = "Content-Encoding"

_PIECE_BYTES = 64 * 1024
_MAX_WINDOW_LOG = 23
"""8 MiB, which RFC 9659 allows senders. The decompressor may keep as much of what it wrote."""

Decoder = Callable[[bytes | bytearray], Iterator[bytes]]
"""Returns the pieces of a complete body, some of them empty. Raises InvalidRequest."""


class _Stream(Protocol):
    """A decompressor, as the standard library's are."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes | bytearray, max_length: int) -> bytes: ...


def decoder_of(header: bytes) -> Decoder | None:
    """Return the decoder for a Content-Encoding header; None if nothing is encoded. Raises UnsupportedCoding."""
    named = (each.strip() for each in header.lower().split(b","))
    codings = [each for each in named if each not in (b"", b"identity")]
    if not codings:
        return None
    if len(codings) > 1 or codings[0] not in _DECODERS:
        raise UnsupportedCoding(
            f"{CODING_HEADER} must be one of {ACCEPTED_CODINGS}, got {header.decode('latin-1')[:100]!r}.",
            param=CODING_HEADER,
        )
    return _DECODERS[codings[0]]


async def decompressed(body: bytes | bytearray, decode: Decoder, memory: BodyMemory) -> bytearray:
    """Decompress a body. Raises TooLarge as soon as it exceeds the limit, Unavailable or InvalidRequest."""
    whole = bytearray()
    received_bytes, most = memory.held_bytes, memory.budget.max_body_bytes
    for piece in decode(body):
        whole += piece
        if most is not None and len(whole) > most:
            raise TooLarge(f"The request's body has more than {most} bytes (--max-body-mb) when decompressed.")
        if len(whole) > SMALL_BYTES:  # three times, since the decompressor may keep as much
            await memory.add(received_bytes + 3 * len(whole) - memory.held_bytes)
        if memory.held_bytes:
            async with memory.budget.turn():
                pass
    return whole


def _gunzip(body: bytes | bytearray) -> Iterator[bytes]:
    return _pieces(_Gzip(), body, "gzip", zlib.error)


def _unzstd(body: bytes | bytearray) -> Iterator[bytes]:
    from backports import zstd  # imported only if needed

    options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: _MAX_WINDOW_LOG}
    return _pieces(zstd.ZstdDecompressor(options=options), body, "zstd", zstd.ZstdError)


_DECODERS: dict[bytes, Decoder] = {b"gzip": _gunzip, b"x-gzip": _gunzip, b"zstd": _unzstd}


class _Gzip:
    """zlib's decompressor with the interface of the others."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)  # with gzip's header and checksum

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def needs_input(self) -> bool:
        return not self._stream.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data

    def decompress(self, data: bytes | bytearray, max_length: int) -> bytes:
        return self._stream.decompress(data or self._stream.unconsumed_tail, max_length)


def _pieces(stream: _Stream, body: bytes | bytearray, coding: str, failure: type[Exception]) -> Iterator[bytes]:
    """Decompress a body that is one stream: each one more would cost a call, however little it holds."""
    try:
        for end in range(_PIECE_BYTES, len(body) + _PIECE_BYTES, _PIECE_BYTES):
            data = body[end - _PIECE_BYTES : end]
            wants_more = False
            while not stream.eof and not wants_more:
                piece = stream.decompress(data, _PIECE_BYTES)
                data = b""
                wants_more = stream.needs_input and len(piece) < _PIECE_BYTES
                yield piece
            if stream.eof:
                if stream.unused_data or end < len(body):
                    raise _invalid(coding, "it goes on after its end")
                return
    except failure as error:
        raise _invalid(coding, str(error)) from error
    raise _invalid(coding, "it ends too early")


def _invalid(coding: str, reason: str) -> InvalidRequest:
    return InvalidRequest(f"The body is not valid {coding}: {reason}.", param=CODING_HEADER)
