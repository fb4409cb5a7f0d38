"""Bodies are decompressed in bounded pieces that count as they come, and what is no complete stream is rejected."""

import gzip
import random
import struct

import httpx
import pytest
from backports import zstd

from tests.bodies import body_models
from tests.compression import compressed
from tests.turns import TurnsOfOthers
from tokenwire.coordinator.app import build_app
from tokenwire.coordinator.auth.admin_key import AdminKey
from tokenwire.coordinator.auth.settings import AdminSettings
from tokenwire.coordinator.http.backpressure import BodyBudget, BodyMemory, BodySettings
from tokenwire.coordinator.http.content_coding import decoder_of, decompressed
from tokenwire.coordinator.output.settings import ApiSettings
from tokenwire.coordinator.settings import CoordinatorSettings
from tokenwire.errors import InvalidRequest, TooLarge, Unavailable, UnsupportedCoding

CODINGS = [b"gzip", b"zstd"]
PIECE = 64 * 1024


def unpacked(body: bytes, coding: bytes) -> bytes:
    """Decompress a body at once."""
    decode = decoder_of(coding)
    assert decode is not None
    return b"".join(decode(body))


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE])
@pytest.mark.parametrize("kind", ["repeated", "random"])
def test_a_body_is_what_was_compressed(size: int, kind: str, coding: bytes) -> None:
    """Whether it shrinks or not: its pieces end elsewhere than those that were compressed."""
    body = b"word " * (size // 5) + b"x" * (size % 5) if kind == "repeated" else random.Random(0).randbytes(size)

    assert unpacked(compressed(body, coding), coding) == body


@pytest.mark.parametrize("coding", CODINGS)
def test_a_piece_is_small_whatever_it_was_made_of(coding: bytes) -> None:
    """A few bytes may stand for a gigabyte."""
    decode = decoder_of(coding)
    assert decode is not None

    pieces = [len(piece) for piece in decode(compressed(bytes(2**24), coding))]

    assert max(pieces) == PIECE
    assert sum(pieces) == 2**24


@pytest.mark.parametrize("coding", CODINGS)
def test_what_is_cut_off_is_rejected(coding: bytes) -> None:
    """Wherever: a checksum is missing too."""
    whole = compressed(b"hello " * 100, coding)

    for length in range(1, len(whole)):
        with pytest.raises(InvalidRequest, match=f"not valid {coding.decode()}: it ends too early") as rejected:
            unpacked(whole[:length], coding)
        assert rejected.value.param == "Content-Encoding"


@pytest.mark.parametrize("coding", CODINGS)
def test_what_follows_is_rejected(coding: bytes) -> None:
    """A second stream too, of which a body could hold a million."""
    for rest in (b"x", compressed(b"hello", coding), b"x" * 2 * PIECE):
        with pytest.raises(InvalidRequest, match="it goes on after its end"):
            unpacked(compressed(b"hello", coding) + rest, coding)


@pytest.mark.parametrize("coding", CODINGS)
def test_broken_bytes_are_rejected(coding: bytes) -> None:
    """As an error of the request: at any place, whatever the decompressor says of it, or else nothing changed."""
    body = random.Random(0).randbytes(300) + b"hello " * 100
    whole = bytearray(compressed(body, coding))
    unchanged = 0
    for place in range(len(whole)):
        whole[place] ^= 0x55
        try:
            unchanged += unpacked(bytes(whole), coding) == body
        except InvalidRequest as error:
            assert error.param == "Content-Encoding"  # noqa: PT017
        whole[place] ^= 0x55

    assert unchanged < 20  # flags and times in a header


def test_a_checksum_is_checked() -> None:
    """The decompressed text has to be what was compressed."""
    body = gzip.compress(b"hello")
    wrong = body[:-8] + struct.pack("<I", 0) + body[-4:]

    with pytest.raises(InvalidRequest, match="incorrect data check"):
        unpacked(wrong, b"gzip")


def test_a_large_window_is_rejected() -> None:
    """It takes as much memory as its header says."""
    wide = zstd.CompressionParameter.window_log
    options: dict[int, int] = {wide: 24, zstd.CompressionParameter.content_size_flag: 0}
    compressor = zstd.ZstdCompressor(options=options)
    body = compressor.compress(bytes(2**24)) + compressor.flush()

    with pytest.raises(InvalidRequest, match="too much memory"):
        unpacked(body, b"zstd")


def test_codings_are_named_in_any_case() -> None:
    """And by gzip's old name; identity is none."""
    assert decoder_of(b"GZip ") is decoder_of(b"x-gzip") is decoder_of(b"gzip")
    assert decoder_of(b"zstd, identity") is decoder_of(b"zstd")
    assert decoder_of(b"identity") is None
    assert decoder_of(b"") is None


@pytest.mark.parametrize("coding", [b"br", b"deflate", b"gzip, zstd", b"\xff", b"x" * 1000])
def test_other_codings_are_rejected(coding: bytes) -> None:
    """As are several of them."""
    with pytest.raises(UnsupportedCoding, match="must be one of gzip, zstd") as rejected:
        decoder_of(coding)

    assert len(rejected.value.message) < 200


async def through(content: bytes, coding: bytes, memory: BodyMemory) -> bytes:
    """Compress a body and decompress it."""
    decode = decoder_of(coding)
    assert decode is not None
    return bytes(await decompressed(compressed(content, coding), decode, memory))


@pytest.mark.parametrize("coding", CODINGS)
async def test_a_compressed_body_counts_as_it_is_decompressed(coding: bytes) -> None:
    """With what the decompressor keeps; a small one does not count, however many there are."""
    memory = BodyMemory(BodyBudget(BodySettings()))

    assert await through(b"x" * 2**16, coding, memory) == b"x" * 2**16
    assert memory.held_bytes == 0
    assert await through(b"x" * 3_000_000, coding, memory) == b"x" * 3_000_000

    assert memory.held_bytes == 3 * 3_000_000


@pytest.mark.parametrize("coding", CODINGS)
async def test_a_decompression_bomb_ends_at_the_limit(coding: bytes) -> None:
    """A piece behind it: nothing of the rest is decompressed."""
    memory = BodyMemory(BodyBudget(BodySettings(max_body_bytes=2**20)))

    with pytest.raises(TooLarge, match=r"more than 1048576 bytes \(--max-body-mb\) when decompressed"):
        await through(bytes(2**26), coding, memory)

    assert memory.held_bytes <= 3 * 2**20 + 2 * 2**19


@pytest.mark.parametrize("coding", CODINGS)
async def test_a_compressed_body_waits_for_memory_like_any_other(coding: bytes) -> None:
    """Others hold the whole budget: it gets a 503 as soon as it is large."""
    bodies = BodyBudget(BodySettings(max_bodies_bytes=2**20), patience_s=0.01)
    await BodyMemory(bodies).add(2**20)

    with pytest.raises(Unavailable, match="--max-bodies-mb"):
        await through(bytes(2**24), coding, BodyMemory(bodies))

    assert bodies.held_bytes == 2**20


@pytest.mark.parametrize("coding", CODINGS)
async def test_others_have_their_turns_while_a_body_is_decompressed(coding: bytes) -> None:
    """One for each piece, which takes a fraction of a millisecond."""
    turns = TurnsOfOthers()
    await through(bytes(2**22), coding, BodyMemory(BodyBudget()))

    assert turns.count >= 2**22 / 2**16 - 1


async def test_every_route_decompresses_its_body() -> None:
    """In both codings; any other is a 415 that lists them, before the body is read."""
    admin = AdminSettings(rl_routes=True, admin_key=AdminKey("open"))
    app = build_app(CoordinatorSettings(("127.0.0.1:1",), api=ApiSettings(render_route=True), admin=admin))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
        for method, path in sorted((method, path) for method, path in body_models(app) if method != "GET"):
            headers = {"content-type": "application/json", "authorization": "Bearer open"}
            for coding in ("gzip", "zstd"):
                content = compressed(rb'{"model": "\ud800"}', coding.encode())
                coded = {**headers, "content-encoding": coding}
                response = await client.request(method, path, content=content, headers=coded)

                assert (path, response.status_code) == (path, 400)
                assert "surrogate" in response.json()["error"]["message"]
            response = await client.request(method, path, content=b"x", headers={**headers, "content-encoding": "br"})

            assert (path, response.status_code) == (path, 415)
            assert response.headers["accept-encoding"] == "gzip, zstd"
            assert "gzip, zstd, got 'br'" in response.json()["error"]["message"]
