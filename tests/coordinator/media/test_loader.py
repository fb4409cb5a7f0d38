"""Tests of loading pictures."""

import asyncio
import base64
from collections.abc import Callable

import pytest

from tests.coordinator.media import pictures
from tokenwire.coordinator.media.content import IMAGE_EMBEDS
from tokenwire.coordinator.media.fetching import GuardedFetcher
from tokenwire.coordinator.media.loader import MediaLoader, MediaReference
from tokenwire.coordinator.media.settings import MediaSettings
from tokenwire.coordinator.media.store import PICTURE_BYTES
from tokenwire.errors import InvalidRequest, Overloaded


def data_url(data: bytes, kind: str = "image/png") -> str:
    """Return a picture as a URL."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


class HeldFetches(GuardedFetcher):
    """Returns pictures by URL once they are let go, and counts how many it fetches at a time."""

    def __init__(self, **found: bytes) -> None:
        super().__init__(MediaSettings())
        self.found = found
        self.urls: list[str] = []
        self.now = self.most = 0
        self.go = asyncio.Event()
        self.begun = asyncio.Event()

    async def fetch(self, url: str, count: Callable[[int], None] = lambda more: None, share: str = "") -> bytes:
        """Return the picture of a URL, whose bytes have arrived."""
        self.urls.append(url)
        count(len(self.found.get(url, pictures.png())))
        self.now += 1
        self.most = max(self.most, self.now)
        self.begun.set()
        await self.go.wait()
        self.now -= 1
        return self.found.get(url, pictures.png())


async def load_urls(
    *urls: str, settings: MediaSettings | None = None, loader: MediaLoader | None = None, share: str = ""
) -> list[bytes]:
    """Load pictures; return their bytes."""
    loader = loader or MediaLoader(settings or MediaSettings())
    references = [MediaReference(url, position=position) for position, url in enumerate(urls)]
    return [content.data for content in await loader.load(references, "tenant", share)]


async def test_data_urls_are_decoded_and_equal_pictures_are_one() -> None:
    """The bytes are those of the URL, whatever type it claims."""
    loader = MediaLoader(MediaSettings())
    one, same, other = await loader.load(
        [
            MediaReference(data_url(pictures.png())),
            MediaReference(data_url(pictures.png(), "text/html;charset=utf-8")),
            MediaReference(data_url(pictures.png(4, 4))),
        ],
        "",
    )
    assert one is same
    assert one.data == pictures.png()
    assert other.data == pictures.png(4, 4)
    assert loader.outcomes["data", "ok"] == 3


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("data:image/png;base64,!!!!", "Non-base64 digit found"),
        ("data:image/png;base64,QUI", "Non-base64 digit found"),
        ("data:image/png;base64", "Only base64 data URLs"),
        ("data:image/png,abc", "Only base64 data URLs"),
        (data_url(b"<svg/>"), "cannot identify image file"),
        (data_url(pictures.huge_png(60_000, 60_000)), "60000x60000 .* exceed the maximum of 64000000 pixels"),
        (data_url(pictures.png() + bytes(2000)), "max-media-mb"),
        (data_url(pictures.png() + bytes(1000)), "max-media-mb"),
    ],
)
async def test_what_is_no_picture_or_too_large_is_refused_before_anything_is_decoded(url: str, reason: str) -> None:
    """Errors name the cause, in vLLM's words where it has some."""
    loader = MediaLoader(MediaSettings(max_bytes=1000))
    with pytest.raises(InvalidRequest, match=reason):
        await load_urls(url, loader=loader)
    assert loader.outcomes["data", "refused"] == 1
    assert loader.store.used_bytes == 0


async def test_a_url_is_fetched_once_per_request() -> None:
    """A picture that a request names twice is fetched once."""
    fetcher = HeldFetches()
    fetcher.go.set()
    assert len(await load_urls("https://a/1", "https://a/1", loader=MediaLoader(MediaSettings(), fetcher))) == 2
    assert fetcher.urls == ["https://a/1"]


async def test_a_tenant_fetches_a_few_at_a_time() -> None:
    """The share bounds a tenant's fetches; all are served in the end."""
    fetcher = HeldFetches()
    loader = MediaLoader(MediaSettings(tenant_fetches=2), fetcher)
    loading = asyncio.create_task(load_urls(*(f"https://a/{i}" for i in range(6)), loader=loader))
    await fetcher.begun.wait()
    fetcher.go.set()
    assert len(await loading) == 6
    assert fetcher.most == 2


async def test_clients_of_one_tenant_take_turns_by_their_shares() -> None:
    """Without keys all are one tenant: the fetches of one address leave room for those of another."""
    fetcher = HeldFetches()
    loader = MediaLoader(MediaSettings(tenant_fetches=1), fetcher)
    loading = [asyncio.create_task(load_urls(f"https://a/{i}", loader=loader, share="192.0.2.1")) for i in range(3)]
    await fetcher.begun.wait()
    fetcher.begun.clear()
    loading.append(asyncio.create_task(load_urls("https://b/1", loader=loader, share="192.0.2.2")))
    await fetcher.begun.wait()
    assert fetcher.urls == ["https://a/0", "https://b/1"]
    fetcher.go.set()
    await asyncio.gather(*loading)
    assert fetcher.most == 2


async def test_a_name_is_the_tenants_whatever_its_share() -> None:
    """Shares are for turns alone: without keys a picture that one address named is found from another."""
    loader = MediaLoader(MediaSettings())
    named = await loader.load([MediaReference(data_url(pictures.png()), "cat")], "", "192.0.2.1")
    assert await loader.load([MediaReference(None, "cat")], "", "192.0.2.2") == named


async def test_without_fetching_only_data_urls_are_taken() -> None:
    """An operator can forbid fetches."""
    with pytest.raises(InvalidRequest, match="fetches no pictures"):
        await load_urls("https://a/1", settings=MediaSettings(fetch=False))


async def test_a_uuid_names_a_picture_for_its_tenant_alone() -> None:
    """A tenant may leave out the bytes of a picture that it has named; another one cannot reach it."""
    loader = MediaLoader(MediaSettings())
    named = MediaReference(data_url(pictures.png()), "cat")
    (content,) = await loader.load([named], "one")
    assert await loader.load([MediaReference(None, "cat")], "one") == [content]
    with pytest.raises(InvalidRequest, match="Cache miss for image at index 1 but data is not provided"):
        await loader.load([named, MediaReference(None, "cat", position=1)][1:], "two")


async def test_embeddings_are_loaded_as_bytes_of_their_own_kind() -> None:
    """Equal ones are one, a uuid names them, and they are counted; a picture's name is not theirs."""
    loader = MediaLoader(MediaSettings())
    tensor = base64.b64encode(b"PK\x03\x04...").decode()
    embeds = MediaReference(tensor, "cat", IMAGE_EMBEDS)
    one, same = await loader.load([embeds, embeds], "one")
    assert one is same
    assert (one.data, one.modality) == (b"PK\x03\x04...", IMAGE_EMBEDS)
    assert await loader.load([MediaReference(None, "cat", IMAGE_EMBEDS)], "one") == [one]
    with pytest.raises(InvalidRequest, match="Cache miss for image at index 0"):
        await loader.load([MediaReference(None, "cat")], "one")
    assert loader.outcomes["embeds", "ok"] == 1
    assert loader.store.used_bytes == len(one.data) + PICTURE_BYTES


async def test_embeddings_are_bounded_as_pictures_are() -> None:
    """Before anything is decoded."""
    loader = MediaLoader(MediaSettings(max_bytes=1000))
    with pytest.raises(InvalidRequest, match="max-media-mb"):
        await loader.load([MediaReference({"a": "!" * 700, "b": "!" * 700}, modality=IMAGE_EMBEDS)], "")
    assert loader.outcomes["embeds", "refused"] == 1


async def test_pictures_beyond_the_memory_are_rejected_until_others_end() -> None:
    """Memory for pictures is bounded: more of them get 429."""
    loader = MediaLoader(MediaSettings(memory_bytes=200 + PICTURE_BYTES))
    held = await loader.load([MediaReference(data_url(pictures.png() + bytes(60)))], "")
    with pytest.raises(Overloaded):
        await load_urls(data_url(pictures.png(4, 4) + bytes(80)), loader=loader)
    del held
    assert await load_urls(data_url(pictures.png(4, 4) + bytes(80)), loader=loader)


async def test_pictures_that_are_on_their_way_take_memory_too() -> None:
    """However many are fetched at a time, they take no more than the memory; what was given up takes none."""
    picture = pictures.png()
    fetcher = HeldFetches()
    loader = MediaLoader(MediaSettings(memory_bytes=len(picture) + PICTURE_BYTES), fetcher)
    arriving = asyncio.create_task(load_urls("https://a/1", loader=loader))
    await fetcher.begun.wait()
    assert loader.store.used_bytes == len(picture) + PICTURE_BYTES
    for url in ("https://a/2", data_url(pictures.png(4, 4))):
        with pytest.raises(Overloaded):
            await load_urls(url, loader=loader)
    assert loader.store.used_bytes == len(picture) + PICTURE_BYTES
    fetcher.go.set()
    assert await arriving == [picture]
    assert loader.store.used_bytes == len(picture) + PICTURE_BYTES
