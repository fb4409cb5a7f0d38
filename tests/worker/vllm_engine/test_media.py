"""Tests of pictures for vLLM: its own processor of a small model, in forked processes, without an engine."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio

from tests.coordinator.media import pictures
from tests.lazily import Lazily
from tests.vision_model.model import vision_model
from tests.worker.media.test_received import item_chunks
from tests.workers import until
from tokenwire.errors import InvalidRequest, MediaMissing
from tokenwire.v1 import inference_pb2 as pb

media_module = Lazily("tokenwire.worker.vllm_engine.media")
arg_utils = Lazily("vllm.engine.arg_utils")
multimodal = Lazily("vllm.multimodal")
image_io = Lazily("vllm.multimodal.media.image")
processing = Lazily("vllm.multimodal.processing")
mm_features = Lazily("vllm.entrypoints.scale_out.token_in_token_out.mm_features")
token_protocol = Lazily("vllm.entrypoints.scale_out.token_in_token_out.protocol")
tokenizers = Lazily("vllm.tokenizers")

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]

PICTURE, OTHER = pictures.png(300, 200, 90), pictures.png(40, 400)
MOST_PIXELS = 100_000
TEXT = "<|im_start|>user\n{}<|im_end|>\n"


class Llm:
    """What of AsyncLLM the media of prompts need."""

    def __init__(self, folder: Path) -> None:
        args = arg_utils.AsyncEngineArgs(model=str(folder), dtype="float32", limit_mm_per_prompt={"image": 3})
        self.model_config = args.create_model_config()
        self.tokenizer = tokenizers.cached_tokenizer_from_config(self.model_config)
        processor = multimodal.MULTIMODAL_REGISTRY.create_processor(self.model_config, tokenizer=self.tokenizer)
        self.renderer = SimpleNamespace(get_mm_processor=lambda: processor)

    def ids(self, content: str) -> list[int]:
        """Return a prompt of one message."""
        found: list[int] = self.tokenizer.encode(TEXT.format(content))
        return found

    def directly(self, ids: list[int], *data: bytes) -> Any:
        """Return what vLLM's processor makes of a prompt in this process."""
        processor = self.renderer.get_mm_processor()
        items = processor.info.parse_mm_data({"image": [image_io.ImageMediaIO().load_bytes(each) for each in data]})
        return processor.apply(processing.ProcessorInputs(ids, items), processing.TimingContext(enabled=False))


@pytest.fixture(scope="module")
def llm() -> Llm:
    """Return a model without an engine."""
    return Llm(vision_model())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def media(llm: Llm) -> AsyncIterator[Any]:
    """Run the media of prompts, with two pictures that were put."""
    made = media_module.VllmMedia(llm, memory_bytes=2**20, processes=1, max_pixels=MOST_PIXELS)
    made.start()
    for data in (PICTURE, OTHER):
        await made.put(item_chunks(data))
    yield made
    await made.stop()


def item(data: bytes, options_json: str | None = None) -> pb.MediaItem:
    """Return the name of a picture."""
    return pb.MediaItem(modality="image", digest=hashlib.sha256(data).digest(), options_json=options_json)


async def test_prompts_are_what_vllms_processor_makes_of_them(llm: Llm, media: Any) -> None:
    """Ids, places, masks and tensors are equal for one picture, for several, and for one that comes twice."""
    for content, data in (
        ("<image>What?", [PICTURE]),
        ("One<image>two<image>three", [PICTURE, OTHER]),
        ("<image><image>", [OTHER, OTHER]),
    ):
        ids = llm.ids(content)
        made, wanted = await media.prompt(ids, [item(each) for each in data]), llm.directly(ids, *data)
        assert made["prompt_token_ids"] == wanted["prompt_token_ids"]
        assert repr(made["mm_placeholders"]) == repr(wanted["mm_placeholders"])
        for ours, theirs in zip(made["mm_kwargs"]["image"], wanted["mm_kwargs"]["image"], strict=True):
            assert (ours["pixel_values"].data == theirs["pixel_values"].data).all()
    assert media._pool.jobs == 2, "each picture is processed once"


async def test_what_follows_the_prompt_is_not_expanded(llm: Llm, media: Any) -> None:
    """A reply that is resumed may have the placeholder among its tokens."""
    ids, reply = llm.ids("<image>"), llm.tokenizer.encode("<image>")
    made = await media.prompt([*ids, *reply], [item(PICTURE)], len(ids))
    assert made["prompt_token_ids"] == [*llm.directly(ids, PICTURE)["prompt_token_ids"], *reply]


async def test_expansions_say_where_the_pictures_are(llm: Llm, media: Any) -> None:
    """Coordinators get the ids, and the place of each picture."""
    ids = llm.ids("<image>x<image>")
    response = await media.expand(pb.ExpandRequest(token_ids=ids, media=[item(PICTURE), item(OTHER)]))
    wanted = llm.directly(ids, PICTURE, OTHER)
    assert response.token_ids == wanted["prompt_token_ids"]
    places = [(each.offset, each.length) for each in wanted["mm_placeholders"]["image"]]
    assert [(span.offset, span.length) for span in response.spans] == places


async def test_pictures_that_were_not_put_are_named(llm: Llm, media: Any) -> None:
    """All that are missing, so that one more try suffices."""
    absent = item(b"absent")
    with pytest.raises(MediaMissing) as raised:
        await media.prompt(llm.ids("<image><image>"), [item(PICTURE), absent])
    assert raised.value.missing == [absent.digest]


async def test_the_kinds_are_vllms(media: Any) -> None:
    """The limit is --limit-mm-per-prompt's, and what stands for a picture in text is the model's."""
    (kind,) = media.kinds()
    assert (kind.modality, kind.limit, list(kind.placeholders)) == ("image", 3, ["<image>"])
    with pytest.raises(InvalidRequest, match=r"At most 3 image\(s\) may be provided in one prompt."):
        await media.prompt([1], [item(PICTURE)] * 4)


@pytest.mark.parametrize("broken", [PICTURE[: len(PICTURE) // 2], b"GIF89a"], ids=["a half", "a head"])
async def test_a_picture_that_cannot_be_decoded_fails_alone(llm: Llm, media: Any, broken: bytes) -> None:
    """Its error is vLLM's, which tells no address of the process; a picture that is processed at the same time is."""
    await media.put(item_chunks(broken))
    ids = llm.ids("<image>")
    results = await asyncio.gather(
        media.prompt(ids, [item(broken)]), media.prompt(ids, [item(PICTURE)]), return_exceptions=True
    )
    assert isinstance(results[0], InvalidRequest)
    assert results[0].message.startswith("Failed to load image: ")
    assert "0x" not in results[0].message
    assert not isinstance(results[1], BaseException)


@pytest.mark.parametrize(
    ("data", "pixels"),
    [
        pytest.param(pictures.png(400, 400), 160_000, id="Pillow would warn"),
        pytest.param(pictures.png_with_two_headers(60_000, 60_000), 60_000**2, id="a PNG with two headers"),
        pytest.param(pictures.gif_with_frames((1, 1), (0, 0, 500, 300)), 150_000, id="a GIF's frame beyond its screen"),
        pytest.param(
            b"\xff\xd8\xff\x00\x00\x12" + pictures.jpeg(400, 400)[2:],
            160_000,
            id="a JPEG's size after what is no marker",
        ),
    ],
)
async def test_a_picture_of_too_many_pixels_is_not_decoded(llm: Llm, media: Any, data: bytes, pixels: int) -> None:
    """Whatever its headers hide from coordinators, the process that decodes it sees."""
    await media.put(item_chunks(data))
    with pytest.raises(InvalidRequest) as raised:
        await media.prompt(llm.ids("<image>"), [item(data)])
    assert raised.value.message == (
        f"Image size ({pixels} pixels) exceeds the maximum of {MOST_PIXELS} pixels (--max-media-pixels)."
    )
    assert media._pool.died == 0


async def test_options_of_a_request_change_what_is_made_of_a_picture(llm: Llm, media: Any) -> None:
    """A picture with other options is another one, which vLLM names differently."""
    ids = llm.ids("<image>")
    options = '{"mm_processor_kwargs": {"size": {"longest_edge": 128}}}'
    plain, smaller = await media.prompt(ids, [item(PICTURE)]), await media.prompt(ids, [item(PICTURE, options)])
    assert len(smaller["prompt_token_ids"]) < len(plain["prompt_token_ids"])
    assert smaller["mm_hashes"] != plain["mm_hashes"]


async def test_options_that_enlarge_a_picture_beyond_bounds_are_an_error(llm: Llm, media: Any) -> None:
    """By name, before their memory is taken; the process lives on, and takes the next picture."""
    edge = 16_384
    sizes = {name: {"longest_edge": edge} for name in ("size", "max_image_size")}
    options = json.dumps({"mm_processor_kwargs": sizes})
    ids, died = llm.ids("<image>"), media._pool.died
    with pytest.raises(InvalidRequest, match=r"takes more than \d+ MiB \(--max-media-pixels\)"):
        await media.prompt(ids, [item(PICTURE, options)])
    usual = '{"mm_processor_kwargs": {"size": {"longest_edge": 64}}}'
    assert len((await media.prompt(ids, [item(PICTURE, usual)]))["prompt_token_ids"]) > len(ids)
    assert media._pool.died == died


@pytest.mark.filterwarnings("ignore:The given buffer is not writable")  # of what vLLM reads
async def test_features_of_rendered_requests_are_what_vllm_reads(llm: Llm, media: Any) -> None:
    """Its own code finds the tensors of each place; without them there are names and places; too many are refused."""
    ids = llm.ids("<image>and<image>")
    request = pb.ExpandRequest(token_ids=ids, media=[item(PICTURE), item(OTHER)], mm_payload="tensors")
    features = token_protocol.MultiModalFeatures.model_validate_json((await media.expand(request)).features_json)
    wanted = llm.directly(ids, PICTURE, OTHER)
    for ours, theirs in zip(
        mm_features.mm_kwargs_from_features(features)["image"], wanted["mm_kwargs"]["image"], strict=True
    ):
        assert (ours["pixel_values"].data == theirs["pixel_values"].data).all()
    parser = llm.renderer.get_mm_processor().info.data_parser
    theirs = mm_features.extract_mm_features(wanted, metadata_fields_for=parser.placeholder_metadata_fields)
    assert features.mm_placeholders == theirs.mm_placeholders
    assert features.mm_metadata == theirs.mm_metadata

    request.mm_payload = "none"
    named = token_protocol.MultiModalFeatures.model_validate_json((await media.expand(request)).features_json)
    assert (named.mm_hashes, named.mm_placeholders) == (features.mm_hashes, features.mm_placeholders)
    assert named.kwargs_data is named.mm_metadata is None
    with pytest.raises(InvalidRequest, match='with mm_payload "none"'):
        media_module.check_tensors(2**30)


async def test_metrics_tell_new_pictures_from_those_that_come_again(llm: Llm, media: Any) -> None:
    """Of the prompts of requests, not of what is asked about them later."""
    names = [f"tokenwire_worker_media_{each}" for each in ("expanded", "reused", "processed")]

    def counts() -> list[float]:
        values = {family.name: family.samples[0].value for family in media.metrics()}
        return [values[name] for name in names]

    new = pictures.png(60, 60, 7)
    await media.put(item_chunks(new))
    before = counts()
    request = pb.ExpandRequest(token_ids=llm.ids("<image>"), media=[item(new)])
    for _ in range(2):
        await media.expand(request)
    request.mm_payload = "none"
    await media.expand(request)
    assert [after - count for after, count in zip(counts(), before, strict=True)] == [2, 1, 1]


async def test_a_picture_that_is_dropped_while_it_waits_is_missing(llm: Llm, media: Any) -> None:
    """A picture that waits is kept by its name alone; those of whom nobody waits any more are not processed."""
    ids, waits, leaves = llm.ids("<image>"), pictures.png(50, 50, 1), pictures.png(50, 50, 2)
    for data in (waits, leaves):
        await media.put(item_chunks(data))
    jobs = media._pool.jobs
    async with media._pool._turns.turn("another"), media._pool._turns.turn("one more"):
        tasks = [asyncio.create_task(media.prompt(ids, [item(data)], tenant="many")) for data in (waits, leaves)]
        await until(lambda: media._pool.waiting == 2)
        tasks[1].cancel()
        await until(lambda: media._pool.waiting == 1)
        large = b"x" * 2**20
        await media.put(item_chunks(large))
    with pytest.raises(MediaMissing) as raised:
        await tasks[0]
    assert raised.value.missing == [item(waits).digest]
    assert media._pool.jobs == jobs
    for data in (PICTURE, OTHER):
        await media.put(item_chunks(data))
