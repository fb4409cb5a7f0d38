"""How many pictures a plain vLLM server takes."""

import pytest

from tests.plain_vllm_server import FakeVllmServer
from tokenwire.coordinator.fleet.transport.vllm_http.http_client import VllmHttpClient
from tokenwire.coordinator.fleet.transport.vllm_http.media_info import probe_media


@pytest.mark.parametrize(("takes", "limits"), [(None, []), (0, []), (3, [3]), (999, [999]), (5000, [1000])])
async def test_the_server_says_how_many_pictures_it_takes(
    server: FakeVllmServer, takes: int | None, limits: list[int]
) -> None:
    """Or that it takes none; where it takes more than are asked for, these are enough."""
    server.pictures = takes
    client = VllmHttpClient(server.url, None)
    try:
        assert [kind.limit for kind in await probe_media(client, "m")] == limits
    finally:
        await client.close()
    assert server.generations.empty()


async def test_a_server_that_fails_may_serve_text(server: FakeVllmServer, caplog: pytest.LogCaptureFixture) -> None:
    """It is another version's, and gets no pictures."""
    server.refusal = (500, "no such thing")
    client = VllmHttpClient(server.url, None)
    try:
        assert await probe_media(client, "m") == []
    finally:
        await client.close()
    assert "no such thing" in caplog.text
