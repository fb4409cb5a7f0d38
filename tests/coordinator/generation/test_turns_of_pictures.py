"""Tests of what others wait for while a request waits for its pictures."""

import asyncio
from collections.abc import Sequence

from tests.coordinator.fakes import token_history
from tests.coordinator.generation.fakes import FakeFleet
from tests.coordinator.generation.test_media import SEES, Expands, image, picture_chat
from tokenwire.coordinator.fleet.request_handle import NEW, Placement
from tokenwire.coordinator.generation.media import MediaPrompts
from tokenwire.coordinator.generation.service import GenerationService
from tokenwire.coordinator.http.backpressure import BodyBudget, BodyMemory
from tokenwire.coordinator.media.content import MediaContent, MediaPrompt
from tokenwire.coordinator.media.loader import MediaLoader, MediaReference
from tokenwire.coordinator.media.settings import MediaSettings
from tokenwire.coordinator.types import GenerationRequest
from tokenwire.v1 import inference_pb2 as pb

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
        self._stage = stage

    async def expand(
        self,
        model: str,
        token_ids: Sequence[int],
        items: Sequence[MediaContent],
        options_json: str | None = None,
        placement: Placement = NEW,
        max_token_ids: int = 0,
        cache_salt: str | None = None,
    ) -> tuple[Sequence[int], MediaPrompt]:
        """Return the prompt as it is, in the end."""
        await self._stage.wait()
        return await super().expand(model, token_ids, items, options_json, placement, max_token_ids, cache_salt)


async def test_large_requests_with_pictures_wait_side_by_side() -> None:
    """For servers of pictures and for workers; what is done here, they do in turns, and what they hold is counted."""
    loads, expands = Stage(), Stage()
    service = GenerationService(
        FakeFleet(), token_history(), media=MediaPrompts(SlowLoader(loads), SlowWorker(expands))
    )
    budget = BodyBudget()

    async def prepare() -> BodyMemory:
        body = BodyMemory(budget)
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
