"""Tests of pictures in chats."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.coordinator.fakes import served_model, token_history
from tests.coordinator.generation.fakes import FakeFleet
from tests.coordinator.media import pictures
from tokenwire.coordinator.auth.caller import Caller
from tokenwire.coordinator.fleet.request_handle import NEW, Placement
from tokenwire.coordinator.generation.media import MediaPrompts
from tokenwire.coordinator.generation.prompts import PreparedPrompt
from tokenwire.coordinator.generation.service import GenerationService
from tokenwire.coordinator.media.content import MediaContent, MediaPrompt
from tokenwire.coordinator.media.loader import MediaLoader, MediaReference
from tokenwire.coordinator.media.settings import MediaSettings
from tokenwire.coordinator.text.template.pictures import PicturePart
from tokenwire.coordinator.text.template.template_options import TemplateOptions
from tokenwire.coordinator.types import ChatPrompt, ExactHistory, KnownPrefix
from tokenwire.errors import InvalidRequest, Overloaded
from tokenwire.v1 import inference_pb2 as pb

KIND = pb.MediaKind(modality="image", limit=3, placeholders=["<one>", "<more>"])
SEES = replace(served_model(), media=(KIND,))


class Expands:
    """Expands nothing; others of its kind say what a model sees, and when."""

    model = SEES

    def __init__(self) -> None:
        self.tenants: list[str] = []
        """Whose prompts were expanded, or had their features made."""

    async def expand(
        self,
        model: str,
        token_ids: Sequence[int],
        items: Sequence[MediaContent],
        options_json: str | None = None,
        placement: Placement = NEW,
        max_token_ids: int = 0,
        cache_salt: str | None = None,
        max_token_id: int = 0,
    ) -> tuple[Sequence[int], MediaPrompt]:
        """Return the prompt as the model sees it."""
        assert (placement.revision, max_token_ids) == (self.model.revision, self.model.max_model_len)
        self.tenants.append(placement.tenant)
        await self.ready()
        seen, spans = self.seen(token_ids, len(items))
        return seen, MediaPrompt(items, token_ids, len(seen), spans, options_json)

    async def ready(self) -> None:
        """Wait for nothing."""

    def seen(self, token_ids: Sequence[int], pictures: int) -> tuple[Sequence[int], Sequence[tuple[int, int]]]:
        """Return a prompt as it is, and where its pictures are."""
        return token_ids, []

    async def features(self, model: str, media: MediaPrompt, mm_payload: str, placement: Placement = NEW) -> bytes:
        """Return as many bytes as the prompt has ids."""
        assert (placement.revision, mm_payload) == (SEES.revision, "tensors")
        self.tenants.append(placement.tenant)
        return bytes(media.length)


def image(data: bytes = pictures.png(), **fields: Any) -> dict[str, Any]:
    """Return a part of a message."""
    return {"type": "image_url", "image_url": {"url": "data:;base64," + base64.b64encode(data).decode()}, **fields}


def picture_chat(*contents: Any, **fields: Any) -> ChatPrompt:
    """Return a chat."""
    return ChatPrompt([{"role": "user", "content": content} for content in contents], **fields)


async def loaded_pictures(
    prompt: ChatPrompt, tenant: str = "", prompts: MediaPrompts | None = None
) -> tuple[Any, list[bytes]]:
    """Load the pictures of a chat; return the contents of its messages, and the pictures."""
    prompts = prompts or MediaPrompts(MediaLoader(MediaSettings()), Expands())
    loaded, items = await prompts.load(prompt, SEES, tenant)
    return [message["content"] for message in loaded.messages], [item.data for item in items]


async def test_pictures_are_found_in_every_form_and_place() -> None:
    """Their parts are marked in their order through the whole chat; other fields of a part are for the template."""
    one, two, three = pictures.png(1, 1), pictures.png(2, 2), pictures.png(3, 3)
    plain = image(two)["image_url"]["url"]
    contents, found = await loaded_pictures(
        picture_chat(
            [{"type": "text", "text": "a"}, image(one, cache_control=1)],
            "text",
            [{"type": "input_image", "image_url": plain}, {"image_url": image(three)["image_url"]}],
        )
    )
    assert found == [one, two, three]
    digests = [MediaContent(data).digest for data in found]
    assert contents[0] == [{"type": "text", "text": "a"}, PicturePart("<one>", {"cache_control": 1}, digests[0])]
    assert contents[1:] == ["text", [PicturePart("<more>", {}, each) for each in digests[1:]]]


async def test_chats_without_pictures_and_models_without_eyes_are_left_alone() -> None:
    """The prompt is the same object: nothing is paid for what is not used."""
    prompts, without = (
        MediaPrompts(MediaLoader(MediaSettings()), Expands()),
        picture_chat("a", [{"type": "text", "text": "b"}]),
    )
    assert await prompts.load(without, SEES, "") == (without, [])
    with_one = picture_chat([image()])
    loaded, items = await prompts.load(with_one, served_model(), "")
    assert loaded is with_one
    assert items == []


@pytest.mark.parametrize(
    ("part", "problem"),
    [
        ({"type": "image_url"}, r"messages\[0\].content\[0\].image_url must have a url"),
        ({"type": "image_url", "image_url": {"url": 5}}, "must have a url"),
        ({"type": "image_url", "image_url": {"url": None}}, "must have a url"),
        ({"type": "image_url", "uuid": ["a"]}, "uuid must be a string"),
        ({"type": "image_url", "uuid": "never named"}, "Cache miss for image at index 0"),
    ],
)
async def test_malformed_pictures_are_named(part: Mapping[str, Any], problem: str) -> None:
    """Errors name the part."""
    with pytest.raises(InvalidRequest, match=problem):
        await loaded_pictures(picture_chat([part]))


@pytest.mark.parametrize(
    ("prompt", "problem"),
    [
        (picture_chat([image()] * 4), r"At most 3 image\(s\) may be provided in one prompt."),
        (
            picture_chat([image()], options=TemplateOptions(chat_template="{{ messages }}")),
            "cannot bring a chat template",
        ),
        (
            picture_chat([image()], history=ExactHistory(prefix=KnownPrefix([1], None, "given", required=True))),
            "cannot be given",
        ),
    ],
)
async def test_what_does_not_go_with_pictures_is_refused_before_they_are_loaded(
    prompt: ChatPrompt, problem: str
) -> None:
    """Too many of them, templates of the request, and ids of the request."""
    loader = MediaLoader(MediaSettings())
    with pytest.raises(InvalidRequest, match=problem):
        await loaded_pictures(prompt, prompts=MediaPrompts(loader, Expands()))
    assert not loader.outcomes


async def test_tenants_have_names_of_their_own() -> None:
    """A uuid is found by the tenant that gave it, and by no other."""
    prompts = MediaPrompts(MediaLoader(MediaSettings()), Expands())
    _, named = await loaded_pictures(picture_chat([image(uuid="cat")]), "one", prompts)
    again = picture_chat([{"type": "image_url", "image_url": None, "uuid": "cat"}])
    assert (await loaded_pictures(again, "one", prompts))[1] == named
    with pytest.raises(InvalidRequest, match="Cache miss"):
        await loaded_pictures(again, "two", prompts)


async def test_a_request_fetches_in_the_turns_of_its_share() -> None:
    """Names are the tenant's; without keys, where all are one tenant, the address takes turns."""
    loaded_for = []

    class Asked(MediaLoader):
        async def load(self, references: Sequence[MediaReference], tenant: str, share: str = "") -> list[MediaContent]:
            loaded_for.append((tenant, share))
            return await super().load(references, tenant, share)

    service = GenerationService(FakeFleet(), token_history(), media=MediaPrompts(Asked(MediaSettings()), Expands()))
    for caller in (Caller(share="192.0.2.1"), Caller("search", share="search")):
        await service.prepare_prompt(picture_chat([image()]), SEES, caller=caller)
    assert loaded_for == [("", "192.0.2.1"), ("search", "search")]


async def test_workers_process_pictures_in_turns_of_who_sent_them() -> None:
    """Without keys these are addresses, as for whatever else takes turns."""
    expands = Expands()
    prompts = MediaPrompts(MediaLoader(MediaSettings()), expands)
    service = GenerationService(FakeFleet(), token_history(), media=prompts)
    for caller in (Caller(share="192.0.2.1"), Caller("tenant", share="search")):
        prepared = await service.prepare_prompt(picture_chat([image()]), SEES, caller=caller)
        assert prepared.media is not None
        await prompts.features(prepared.media, SEES, "tensors", caller.share)
    assert expands.tenants == ["192.0.2.1"] * 2 + ["search"] * 2


async def test_prompts_are_expanded_by_workers_of_the_models_revision() -> None:
    """Options of the request go with them."""
    prompts = MediaPrompts(MediaLoader(MediaSettings()), Expands())
    prepared = await prompts.expanded(PreparedPrompt([1, 2], "ab"), [], [MediaContent(b"x")], SEES, "{}")
    assert prepared.media is not None
    assert (prepared.token_ids, prepared.media.options_json, prepared.reused) == ([1, 2], "{}", 0)


async def test_ids_from_the_client_are_not_those_of_a_prompt_before_its_expansion() -> None:
    """Chats with pictures continue from stored ids, not from those on messages."""
    history = ExactHistory(tenant="t", prefix=KnownPrefix([1], 0, "given"))
    prompts = MediaPrompts(MediaLoader(MediaSettings()), Expands())
    loaded, _ = await prompts.load(picture_chat([image()], history=history), SEES, "")
    assert loaded.history == ExactHistory(tenant="t")


async def test_features_of_rendered_requests_count_as_long_as_they_are_sent() -> None:
    """They take memory like pictures: with none left there is an error."""
    prompts = MediaPrompts(MediaLoader(MediaSettings(memory_bytes=100)), Expands())
    media = MediaPrompt([], [1] * 60, 60, [])
    features = await prompts.features(media, SEES, "tensors")
    assert prompts.loader.store.used_bytes == len(features.json) == 60
    with pytest.raises(Overloaded):
        await prompts.features(media, SEES, "tensors")
    del features
    assert prompts.loader.store.used_bytes == 0


TENSOR = base64.b64encode(b"PK\x03\x04").decode()


async def test_embeddings_take_the_places_of_pictures() -> None:
    """Templates get the same, and their bytes are of their own modality."""
    prompts = MediaPrompts(MediaLoader(MediaSettings()), Expands())
    part = {"type": "image_embeds", "image_embeds": TENSOR}
    loaded, items = await prompts.load(picture_chat([part, "a", part]), SEES, "")
    assert [item.modality for item in items] == ["image_embeds"] * 2
    first, _, second = loaded.messages[0]["content"]
    assert (first.placeholder, second.placeholder) == ("<one>", "<more>")


async def test_pictures_and_embeddings_are_not_mixed() -> None:
    """In vLLM's words."""
    with pytest.raises(InvalidRequest, match="Mixing raw image and embedding inputs is not allowed"):
        await loaded_pictures(picture_chat([image()], [{"type": "image_embeds", "image_embeds": TENSOR}]))
