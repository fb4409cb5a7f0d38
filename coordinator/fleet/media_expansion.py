"""Asks a worker how a prompt with media expands, before the prompt is checked, queued and sent."""

import logging
from collections.abc import Sequence
from typing import Protocol

from tokenwire.coordinator.fleet.capabilities import MEDIA_OPTIONS, remedy_for
from tokenwire.coordinator.fleet.media_answers import MOST_TOKEN_IDS
from tokenwire.coordinator.fleet.request_handle import NEW, Placement
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.coordinator.media.content import MediaContent, MediaPrompt
from tokenwire.errors import EngineFailed, InvalidRequest, Unavailable

log = logging.getLogger(__name__)

_MOST_WORKERS = 3
"""That are asked, one after the other, if they fail."""


class MediaWorkers(Protocol):
    """What an expansion needs of the workers; see WorkerPool."""

    def candidates_to_place(self, model: str, adapter_id: int, placement: Placement) -> list[WorkerSession]:
        """Return the workers that may take a request, whether they have capacity or not."""

    def unavailable_reason(self, model: str, adapter_id: int = 0) -> str:
        """Return why no worker can take a request for a model; empty when one can."""


class MediaExpander:
    """Expands prompts on workers: preferably one that has the media, else the one with least to do."""

    def __init__(self, workers: MediaWorkers) -> None:
        self._workers = workers

    async def expand(
        self,
        model: str,
        token_ids: Sequence[int],
        items: Sequence[MediaContent],
        options_json: str | None = None,
        placement: Placement = NEW,
        max_token_ids: int = MOST_TOKEN_IDS,
        cache_salt: str | None = None,
    ) -> tuple[Sequence[int], MediaPrompt]:
        """Return the expanded prompt, and what its workers get. The salt is for workers that compute it.

        Raises InvalidRequest for media that cannot be processed, PromptTooLong for more than `max_token_ids`,
        Overloaded, Unavailable or EngineFailed.
        """
        most = min(max_token_ids, MOST_TOKEN_IDS)
        failed: list[WorkerSession] = []
        while True:
            session = self._choose(model, items, placement, failed, options_json is not None)
            try:
                expanded = await session.media.expand(token_ids, items, options_json, most, cache_salt)
            except (Unavailable, EngineFailed) as error:
                log.warning("worker %s cannot expand a prompt: %s", session.address, error.message)
                failed.append(session)
                if len(failed) == _MOST_WORKERS:
                    raise
                continue
            media = MediaPrompt(items, token_ids, len(expanded.token_ids), expanded.spans, options_json)
            return expanded.token_ids, media

    def _choose(
        self,
        model: str,
        items: Sequence[MediaContent],
        placement: Placement,
        failed: Sequence[WorkerSession],
        has_options: bool,
    ) -> WorkerSession:
        takes = [each for each in self._workers.candidates_to_place(model, 0, placement) if each.takes_media]
        able = [each for each in takes if not (has_options and MEDIA_OPTIONS in each.unsupported)]
        if takes and not able:
            message = f"No worker of {model} supports mm_processor_kwargs or media_io_kwargs."
            raise InvalidRequest(message + remedy_for(MEDIA_OPTIONS), param=MEDIA_OPTIONS)
        found = [each for each in able if each not in failed]
        if not found:
            reason = self._workers.unavailable_reason(model) or f"No other worker of {model} takes media right now."
            raise Unavailable(reason, retry_after_s=1)
        return min(found, key=lambda each: (each.media.lacks(items), each.open_slots))
