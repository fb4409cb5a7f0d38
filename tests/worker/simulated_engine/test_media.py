"""Tests of pictures in simulated prompts."""

import asyncio
import hashlib
import json
from dataclasses import replace

import pytest

from tests.worker.media.test_received import item_chunks
from tests.worker.simulated_engine.simulation import FAST
from tokenwire.errors import InvalidRequest, MediaMissing, Overloaded
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.simulated_engine.engine import SimulatedEngine
from tokenwire.worker.simulated_engine.media import PLACEHOLDER, SimulatedMedia, SimulatedProcessing
from tokenwire.worker.simulated_engine.model import load_model

MODEL = load_model(None, None)
WIDTH = len(PLACEHOLDER)  # a byte is an id


async def media_with(*pictures: bytes) -> tuple[SimulatedMedia, list[pb.MediaItem]]:
    """Return media with pictures of five ids each."""
    media = SimulatedMedia(MODEL, 5, 2**20)
    for picture in pictures:
        await media.put(item_chunks(picture))
    return media, [pb.MediaItem(modality="image", digest=hashlib.sha256(each).digest()) for each in pictures]


def ids_of_text(text: str) -> list[int]:
    """Return the ids of a text."""
    return list(text.encode())


async def test_placeholders_become_the_ids_of_their_pictures() -> None:
    """Each picture has the same number of ids, its own ones, at the place of its placeholder."""
    media, items = await media_with(b"one", b"two")
    token_ids, spans = media.expanded(ids_of_text(f"a{PLACEHOLDER}b{PLACEHOLDER}"), items)
    assert [(span.offset, span.length) for span in spans] == [(1, 5), (7, 5)]
    assert (token_ids[0], token_ids[6], len(token_ids)) == (ord("a"), ord("b"), 12)
    assert token_ids[1:6] != token_ids[7:]


async def test_what_follows_the_prompt_is_no_placeholder() -> None:
    """A reply that is resumed may have generated the placeholder's ids: these stay."""
    media, items = await media_with(b"one")
    token_ids, _ = media.expanded(ids_of_text(PLACEHOLDER * 2), items, end=WIDTH)
    assert token_ids[5:] == ids_of_text(PLACEHOLDER)


async def test_missing_pictures_and_missing_placeholders_are_told_apart() -> None:
    """What was not put is to be put; a prompt without a place for a picture is invalid."""
    media, items = await media_with(b"one")
    absent = pb.MediaItem(digest=bytes(32))
    with pytest.raises(MediaMissing) as raised:
        media.expanded(ids_of_text(PLACEHOLDER * 2), [*items, absent])
    assert raised.value.missing == [absent.digest]
    with pytest.raises(InvalidRequest, match="0 placeholders for 1 pictures"):
        media.expanded(ids_of_text("no"), items)


async def test_a_picture_takes_its_time_once() -> None:
    """Those that wait and those that are done are counted; one that comes again is neither."""
    processing = SimulatedProcessing(0.01)
    running = asyncio.create_task(processing.process([b"one", b"two"]))
    await asyncio.sleep(0)
    assert (processing.waiting, processing.jobs) == (2, 0)
    await running
    await processing.process([b"two"])
    assert (processing.waiting, processing.jobs) == (0, 2)


async def test_pictures_have_as_much_memory_as_the_settings_give() -> None:
    """One that is larger is refused, as by a worker with vLLM."""
    engine = SimulatedEngine(replace(FAST, image_tokens=5, received_media_bytes=4))
    await engine.start()
    assert engine.media is not None
    await engine.media.put(item_chunks(b"four"))
    with pytest.raises(Overloaded, match="--received-media-mb"):
        await engine.media.put(item_chunks(b"more than four"))


async def test_features_of_rendered_requests_are_named_and_placed() -> None:
    """In vLLM's form, without tensors, and only where they are asked for."""
    media, items = await media_with(b"one")
    ids = ids_of_text(f"a{PLACEHOLDER}")
    plain, rendered = [
        await media.expand(pb.ExpandRequest(token_ids=ids, media=items, mm_payload=each)) for each in ("", "tensors")
    ]
    assert plain.features_json == b""
    assert json.loads(rendered.features_json) == {
        "mm_hashes": {"image": [items[0].digest.hex()]},
        "mm_placeholders": {"image": [{"offset": 1, "length": 5}]},
        "kwargs_data": None,
        "mm_metadata": None,
    }


def test_embeddings_are_a_kind_of_their_own_where_they_are_taken() -> None:
    """As of a worker with --enable-mm-embeds."""
    for embeds, kinds in ((False, ["image"]), (True, ["image", "image_embeds"])):
        media = SimulatedMedia(MODEL, 5, 2**20, embeds=embeds)
        assert [kind.modality for kind in media.kinds()] == kinds
