"""Chats with pictures are expanded: none gets into a reply, and none keeps others waiting.

One file, since all tests are of one function in front of the same kinds of workers.
"""

import asyncio
import hashlib
import weakref
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.coordinator.fakes import token_history
from tests.coordinator.generation.fakes import FakeFleet
from tests.coordinator.generation.test_media import SEES, Expands, image, loaded_pictures, picture_chat
from tests.coordinator.history.models import CHATML, decoded, encoded, small_model
from tests.coordinator.media.pictures import png
from tokenwire.coordinator.generation.media import MediaPrompts
from tokenwire.coordinator.generation.service import GenerationService
from tokenwire.coordinator.http.backpressure import BodyBudget, BodyMemory
from tokenwire.coordinator.media.content import MediaContent
from tokenwire.coordinator.media.loader import MediaLoader, MediaReference
from tokenwire.coordinator.media.settings import MediaSettings
from tokenwire.coordinator.text.template.messages import ChatMessage
from tokenwire.coordinator.text.template.pictures import as_stored
from tokenwire.coordinator.types import ChatPrompt, ExactHistory, Finish, GenerationRequest
from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb

PLACEHOLDER, SEEN = "<image>", "<seen>"
_KIND = pb.MediaKind(modality="image", limit=9, placeholders=[PLACEHOLDER])
MODEL = replace(small_model(CHATML + f"{{# {PLACEHOLDER} {SEEN} #}}"), media=(_KIND,))
END = "<|im_end|>"


class Replaces(Expands):
    """Replaces a prompt's first placeholders, as workers find them, by two ids each."""

    model = MODEL

    def seen(self, token_ids: Sequence[int], pictures: int) -> tuple[Sequence[int], Sequence[tuple[int, int]]]:
        """Return the prompt with pictures that are seen."""
        (placeholder,), seen = encoded(MODEL, PLACEHOLDER), encoded(MODEL, SEEN) * 2
        made, spans = list[int](), list[tuple[int, int]]()
        for token_id in token_ids:
            is_picture = token_id == placeholder and len(spans) < pictures
            if is_picture:
                spans.append((len(made), len(seen)))
            made += seen if is_picture else [token_id]
        return made, spans


class Conversation:
    """A chat whose replies are given, and kept with their ids."""

    def __init__(self) -> None:
        media = MediaPrompts(MediaLoader(MediaSettings()), Replaces())
        self._service = GenerationService(FakeFleet(), token_history(), media=media)
        self._messages: list[ChatMessage] = []

    async def turn(self, text: str, reply: str, pictures: int = 0, whole: bool = False) -> tuple[str, str]:
        """Return the next prompt, with the pictures behind a text: what is reused of it, and the rest.

        reply: what the model writes to it, of which the client sees what is no special token, or the whole.
        """
        content = [{"type": "text", "text": text}, *[image()] * pictures]
        self._messages.append({"role": "user", "content": content})
        prompt = ChatPrompt(list(self._messages), history=ExactHistory())
        request = GenerationRequest("r", "model", [prompt], pb.SamplingParams())
        prepared = await self._service.prepare(request, MODEL)
        ids = encoded(MODEL, reply + END)
        visible = reply if whole else MODEL.tokenizer.decode(ids)
        assert prepared.history_writer is not None
        prepared.history_writer.on_delta(0, visible, ids, Finish("stop"))
        self._messages.append({"role": "assistant", "content": visible})
        made, reused = list(prepared.prompts[0].token_ids), prepared.prompts[0].reused
        return decoded(MODEL, made[:reused]), decoded(MODEL, made[reused:])


def users(text: str) -> str:
    """Return a user's message in a prompt, before a reply."""
    return f"<|im_start|>user\n{text}{END}\n<|im_start|>assistant\n"


SYSTEM = f"<|im_start|>system\nBe nice.{END}\n"
PICTURE = f"{SEEN}{SEEN}\n"
"""A picture in a template that takes text."""


async def test_a_placeholder_that_the_model_wrote_takes_no_picture() -> None:
    """The next picture stays in its message: that turn is the template's, and the one after it is exact again."""
    chat = Conversation()
    first = f"{SYSTEM}{users(f'{PICTURE}one')}"
    assert await chat.turn("one", f"yes{PLACEHOLDER}", pictures=1) == ("", first)
    second = f"{first}yes{END}\n{users(f'{PICTURE}two')}"
    assert await chat.turn("two", "<tool_call>no", pictures=1) == ("", second)
    third = f"\n{users(f'{PICTURE}three')}"
    assert await chat.turn("three", "so", pictures=1) == (f"{second}<tool_call>no{END}", third)


async def test_a_placeholder_that_the_model_wrote_is_a_token_as_others_where_no_picture_follows() -> None:
    """Neither a chat without pictures nor one that continues without another one loses its ids."""
    for pictures, shown in ((0, ""), (1, PICTURE)):
        chat = Conversation()
        first = f"{SYSTEM}{users(f'{shown}one')}"
        assert await chat.turn("one", f"yes{PLACEHOLDER}", pictures) == ("", first)
        assert await chat.turn("two", "no") == (f"{first}yes{PLACEHOLDER}{END}", "\n" + users("two"))


async def test_the_first_picture_of_a_chat_goes_into_no_earlier_reply() -> None:
    """A reply before it has a placeholder: the picture stays in its message."""
    chat = Conversation()
    await chat.turn("one", f"yes{PLACEHOLDER}")
    await chat.turn("two", "no")
    again = f"{SYSTEM}{users('one')}yes{END}\n{users('two')}no{END}\n"
    assert await chat.turn("three", "so", pictures=2) == ("", f"{again}{users(f'{PICTURE}{PICTURE}three')}")


async def test_a_placeholder_in_a_replys_text_is_refused_where_a_picture_follows() -> None:
    """The template would put the picture into the reply, too: the error says so. Without one the chat goes on."""
    for pictures in (0, 1):
        chat = Conversation()
        await chat.turn("one", f"yes{PLACEHOLDER}", pictures=1, whole=True)
        if pictures:
            with pytest.raises(InvalidRequest, match="A reply in this chat has the text of a placeholder"):
                await chat.turn("two", "no", pictures)
        else:
            assert (await chat.turn("two", "no", pictures))[0].endswith(f"yes{PLACEHOLDER}{END}")


HUGE = 2**21
"""Bytes of a body: one of this size is prepared at a time."""


class Stage:
    """Where requests arrive, and wait until they may go on."""

    def __init__(self) -> None:
        self.reached = 0
        self._arrived, self._goes_on = asyncio.Condition(), asyncio.Event()

    async def wait(self) -> None:
        """Arrive, and wait."""
        async with self._arrived:
            self.reached += 1
            self._arrived.notify_all()
        await self._goes_on.wait()

    async def arrived(self, count: int) -> None:
        """Wait until so many wait."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: self.reached == count)

    def go_on(self) -> None:
        """Let all go on."""
        self._goes_on.set()


class SlowLoader(MediaLoader):
    """Loads pictures from a server that takes its time."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(MediaSettings())
        self._stage = stage

    async def load(self, references: Sequence[MediaReference], tenant: str, share: str = "") -> list[MediaContent]:
        """Return the pictures when they may come."""
        await self._stage.wait()
        return await super().load(references, tenant, share)


class SlowWorker(Expands):
    """Expands prompts when it may."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self._stage = stage

    async def ready(self) -> None:
        """Wait until it may."""
        await self._stage.wait()


async def test_what_is_kept_of_a_chat_names_its_pictures() -> None:
    """By their digests: sessions are recorded and compared by messages, and the bytes are not theirs to keep."""
    chat = picture_chat("look", [{"type": "text", "text": "a"}, image(png(3), detail="low")])
    contents, (data,) = await loaded_pictures(chat)
    media = MediaPrompts(MediaLoader(MediaSettings()), Expands())
    request = GenerationRequest("r", "digits", [chat], pb.SamplingParams())

    prepared = await GenerationService(FakeFleet(), token_history(), media=media).prepare(request, SEES)

    (kept,) = prepared.request.prompts
    assert isinstance(kept, ChatPrompt)
    assert [message["content"] for message in kept.messages] == contents
    stored = as_stored(kept.messages[1])["content"]
    digest = hashlib.sha256(data).hexdigest()
    assert stored == [{"type": "text", "text": "a"}, {"type": "image", "sha256": digest, "detail": "low"}]


class Text(str):
    """Text of which a test sees whether anything still has it."""

    __slots__ = ("__weakref__",)


@pytest.mark.parametrize("is_kept", [False, True])
async def test_while_a_worker_expands_a_chat_nothing_has_the_texts_of_its_pictures(is_kept: bool) -> None:
    """Others get their memory, unless something keeps the body."""
    expands, budget = Stage(), BodyBudget()
    body = BodyMemory(budget, is_kept=is_kept)
    service = GenerationService(
        FakeFleet(), token_history(), media=MediaPrompts(MediaLoader(MediaSettings()), SlowWorker(expands))
    )
    picture = image()
    picture["image_url"]["url"] = url = Text(picture["image_url"]["url"])
    size, text = len(url), weakref.ref(url)
    request = GenerationRequest("r", "digits", [picture_chat([picture])], pb.SamplingParams())
    del picture, url
    await body.add(HUGE)

    preparing = asyncio.create_task(service.prepare(request, SEES, body=body))
    async with asyncio.timeout(5):
        await expands.arrived(1)
        assert ((text() is None), budget.held_bytes) == ((False, HUGE) if is_kept else (True, HUGE - 3 * size))
        expands.go_on()
        await preparing


async def test_large_requests_with_pictures_wait_side_by_side() -> None:
    """For servers of pictures and for workers; what is done here, they do in turns, and what they hold is counted."""
    loads, expands = Stage(), Stage()
    service = GenerationService(
        FakeFleet(), token_history(), media=MediaPrompts(SlowLoader(loads), SlowWorker(expands))
    )
    budget = BodyBudget()

    async def prepare() -> BodyMemory:
        body = BodyMemory(budget, is_kept=True)
        await body.add(HUGE)
        await body.begin_turn(HUGE)
        request = GenerationRequest("r", "digits", [picture_chat([image()])], pb.SamplingParams())
        await service.prepare(request, SEES, body=body)
        return body

    tasks = [asyncio.create_task(prepare()) for _ in range(8)]
    async with asyncio.timeout(5):
        await loads.arrived(8)
        loads.go_on()
        await expands.arrived(8)
        assert budget.held_bytes == 8 * HUGE
        await BodyMemory(budget).begin_turn(HUGE)
        expands.go_on()
        assert [(body.held_bytes, body.turns) for body in await asyncio.gather(*tasks)] == [(HUGE, None)] * 8
