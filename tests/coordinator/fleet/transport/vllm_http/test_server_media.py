"""A plain vLLM server gets the bytes of an item once."""

from collections.abc import Sequence

import pytest

from tokenwire.coordinator.fleet.transport.vllm_http.media_body import MediaPart
from tokenwire.coordinator.fleet.transport.vllm_http.server_media import ServerMedia
from tokenwire.coordinator.fleet.transport.vllm_http.unsent_media import UnsentMedia
from tokenwire.errors import InvalidRequest, MediaMissing
from tokenwire.v1 import inference_pb2 as pb

ONE, TWO = b"1", b"2"


class Requests:
    """A server that records what it gets of each item."""

    def __init__(self, keeps: bool = True) -> None:
        self.store = UnsentMedia(None)
        for digest in (ONE, TWO):
            self.store.put(digest, digest * 3)
        self.media = ServerMedia(self.store)
        self.keeps = keeps
        self.got: list[list[bytes | None]] = []

    async def send(self, *digests: bytes) -> None:
        """Send a request with items."""
        await self.media.send([pb.MediaItem(modality="image", digest=digest) for digest in digests], self._request)

    async def _request(self, parts: Sequence[MediaPart]) -> None:
        self.got.append([part.data for part in parts])
        if not self.keeps and any(part.data is None for part in parts):
            raise InvalidRequest("Cache miss for image at index 0 but data is not provided.")


async def test_an_item_is_sent_once() -> None:
    """From then on it is named."""
    server = Requests()
    await server.send(ONE)
    await server.send(ONE, TWO)
    await server.send(TWO, ONE)

    assert server.got == [[b"111"], [None, b"222"], [None, None]]


async def test_an_item_that_the_server_dropped_is_sent_again() -> None:
    """In a second request, which nobody notices."""
    server = Requests()
    await server.send(ONE)
    server.keeps = False
    await server.send(ONE)

    assert server.got == [[b"111"], [None], [b"111"]]


async def test_a_server_that_keeps_nothing_always_gets_the_bytes() -> None:
    """After a few requests in vain; one in between that was not in vain starts the count again."""
    server = Requests()
    for keeps in (True, False, False, True, False, False, False, False, False):
        server.keeps = keeps
        await server.send(ONE)

    assert server.got[-2:] == [[b"111"], [b"111"]]
    assert server.got.count([None]) == 6


async def test_what_nobody_has_is_missing() -> None:
    """An item that the server has is not, but its bytes may be needed after all."""
    server = Requests()
    items = [pb.MediaItem(digest=digest) for digest in (ONE, b"3", b"3")]
    assert server.media.missing(items) == [b"3"]
    with pytest.raises(MediaMissing) as failed:
        await server.send(ONE, b"3")
    assert (failed.value.missing, server.got) == ([b"3"], [])
    await server.send(ONE)
    server.store.put(b"4", b"x" * 2**28)  # nothing else has room
    assert server.media.missing(items[:1]) == []
    server.keeps = False
    with pytest.raises(MediaMissing):
        await server.send(ONE)


async def test_another_error_is_the_requests() -> None:
    """It is made once."""
    server = Requests()

    async def fail(parts: Sequence[MediaPart]) -> None:
        server.got.append([part.data for part in parts])
        raise InvalidRequest("Failed to load image: truncated")

    for _ in range(2):
        with pytest.raises(InvalidRequest, match="Failed to load"):
            await server.media.send([pb.MediaItem(digest=ONE)], fail)
    assert server.got == [[b"111"], [b"111"]]
