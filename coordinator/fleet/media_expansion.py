"""Asks a worker how a prompt with media expands, before the prompt is checked, queued and sent."""

import asyncio
import hashlib
import logging
import math
from collections.abc import Awaitable, Callable, Sequence, Set
from typing import NamedTuple, Protocol

from tokenwire.coordinator.fleet.capabilities import MEDIA_FEATURES, MEDIA_OPTIONS, media_needs, remedy_for
from tokenwire.coordinator.fleet.media_answers import MOST_TOKEN_IDS, Expansion
from tokenwire.coordinator.fleet.request_handle import NEW, Placement
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.coordinator.media.content import IMAGE, IMAGE_EMBEDS, MediaContent, MediaPrompt
from tokenwire.errors import EngineFailed, InvalidRequest, Overloaded, TokenwireError, Unavailable, Unsupported

log = logging.getLogger(__name__)

_MOST_WORKERS = 3
"""That are asked, one after the other, if they fail."""
_LOOK_S = 0.2
"""How often requests look for a worker while there is none."""
_MOST_WAITING = 256
"""Requests that wait for one. They have a place in no queue yet."""
_ANY_ID = 2**32
_PATIENCE_S = 5.0
"""Longer than it takes until a worker is silent: one that is left because of it gets no other calls."""
_LISTENS_S = 60.0
"""So long an answer of such a worker still counts: with it, the worker gets calls again."""


class MediaWorkers(Protocol):
    """What an expansion needs of the workers; see WorkerPool."""

    def candidates_to_place(self, model: str, adapter_id: int, placement: Placement) -> list[WorkerSession]:
        """Return the workers that may take a request, whether they have capacity or not."""

    def unavailable_reason(self, model: str, adapter_id: int = 0) -> str:
        """Return why no worker can take a request for a model; empty when one can."""


class MediaExpander:
    """Expands prompts on workers: preferably one that has the media, else the one with least to do.

    Of those that are equal, the same one gets the same picture from every coordinator, and pictures are spread.
    """

    def __init__(
        self, workers: MediaWorkers, patience_s: float = _PATIENCE_S, absence_s: float = 0.0, look_s: float = _LOOK_S
    ) -> None:
        """`patience_s`: how long a request waits for one worker while another one answers and has fewer calls open;
        `absence_s`: how long while there is no worker at all.
        """
        self._workers = workers
        self._patience_s = patience_s
        self._absence_s = absence_s
        self._look_s = look_s
        self._waiting = 0
        self._left: dict[str, asyncio.Future[Expansion]] = {}
        """Calls for whose answer nobody waits, one of each worker at most."""

    async def expand(
        self,
        model: str,
        token_ids: Sequence[int],
        items: Sequence[MediaContent],
        options_json: str | None = None,
        placement: Placement = NEW,
        max_token_ids: int = MOST_TOKEN_IDS,
        cache_salt: str | None = None,
        max_token_id: int = _ANY_ID,
    ) -> tuple[Sequence[int], MediaPrompt]:
        """Return the expanded prompt, and what its workers get. The salt is for workers that compute it.

        `max_token_id`: of the model; a worker that adds larger ones has failed. Raises InvalidRequest for media that
        cannot be processed, PromptTooLong for more than `max_token_ids`, Overloaded, Unavailable or EngineFailed.
        """
        most = min(max_token_ids, MOST_TOKEN_IDS)
        needs = media_needs(items, options_json)
        most_id = max(max_token_id, max(token_ids, default=0))  # those of the client are its own error

        async def ask(session: WorkerSession) -> Expansion:
            expanded = await session.media.expand(
                token_ids, items, options_json, most, cache_salt, tenant=placement.tenant
            )
            if max(expanded.token_ids, default=0) > most_id:
                raise EngineFailed("The worker expanded a prompt to ids that are not in the model's vocabulary.")
            return expanded

        expanded, by = await self._ask(_Question(model, items, placement, needs), ask)
        media = MediaPrompt(items, token_ids, len(expanded.token_ids), expanded.spans, options_json, by.instance_id)
        return expanded.token_ids, media

    async def features(self, model: str, media: MediaPrompt, mm_payload: str, placement: Placement = NEW) -> bytes:
        """Return what a rendered request has of the media of an expanded prompt: vLLM's features, as JSON.

        Raises what `expand` does, and Unsupported.
        """
        needs = {MEDIA_FEATURES, *media_needs(media.items, media.options_json)}
        given = media.token_ids, media.items, media.options_json
        try:
            expanded, _ = await self._ask(
                _Question(model, media.items, placement, needs),
                lambda session: session.media.expand(
                    *given, MOST_TOKEN_IDS, mm_payload=mm_payload, tenant=placement.tenant
                ),
            )
        except Unsupported as error:  # a version that does not
            raise Unsupported(f"No worker of {model} can render requests with pictures ({error.message}).") from error
        return expanded.features_json

    async def _ask(
        self, question: "_Question", ask: Callable[[WorkerSession], Awaitable[Expansion]]
    ) -> tuple[Expansion, WorkerSession]:
        """Return the answer of one worker after the other, until one does not fail, and that worker.

        One that says that the client is wrong may be wrong itself: another one is asked, if there is one.
        """
        failed: list[WorkerSession] = []
        refusals: dict[WorkerSession, InvalidRequest] = {}
        while True:
            session = await self._found(question, failed)
            try:
                answer = await self._answer(session, question, ask, failed)
                break
            except InvalidRequest as error:
                if refusals or all(each.media.is_silent for each in self._others(session, question, failed)):
                    raise
                refusals[session] = error
            except (Unavailable, EngineFailed, Overloaded) as error:
                log.warning("worker %s cannot expand a prompt: %.500s", session.address, error.message)
                if len(failed) + 1 == _MOST_WORKERS:
                    raise next(iter(refusals.values()), error) from error
            failed.append(session)
        for each in refusals:
            each.count_failed([session.address])
        return answer, session

    async def _answer(
        self,
        session: WorkerSession,
        question: "_Question",
        ask: Callable[[WorkerSession], Awaitable[Expansion]],
        failed: Sequence[WorkerSession],
    ) -> Expansion:
        """Return a worker's answer; raises Unavailable once another one is likelier to answer."""
        call = asyncio.ensure_future(ask(session))
        try:
            while not (await asyncio.wait([call], timeout=self._patience_s))[0]:
                if self._should_leave(session, question, failed):
                    if session.media.is_silent and session.address not in self._left:
                        self._leave(session.address, call)
                    raise Unavailable("It does not answer.", retry_after_s=1)
            return call.result()
        finally:
            if self._left.get(session.address) is not call:
                call.cancel()

    def _leave(self, worker: str, call: asyncio.Future[Expansion]) -> None:
        """Let a call go on, so that a worker that is only slow, as with its first picture, is not silent for longer."""
        self._left[worker] = call
        timer = call.get_loop().call_later(_LISTENS_S, call.cancel)

        def on_done(_: asyncio.Future[Expansion]) -> None:
            timer.cancel()
            del self._left[worker]
            if not call.cancelled():
                call.exception()  # nobody else asks for it

        call.add_done_callback(on_done)

    async def _found(self, question: "_Question", failed: Sequence[WorkerSession]) -> WorkerSession:
        """Return the next worker to ask. Where there is none, wait for one, as other requests do in the queue."""
        for _ in range(math.ceil(self._absence_s / self._look_s)):
            if self._taking(question) or not self._workers.unavailable_reason(question.model):
                break
            if self._waiting >= _MOST_WAITING:
                break
            self._waiting += 1
            try:
                await asyncio.sleep(self._look_s)
            finally:
                self._waiting -= 1
        return self._choose(question, failed)

    def _should_leave(self, session: WorkerSession, question: "_Question", failed: Sequence[WorkerSession]) -> bool:
        """Return whether another worker is likelier to answer than one that has not; the last one is waited for."""
        if len(failed) + 1 == _MOST_WORKERS:
            return False
        asked = session.media
        others = [each.media for each in self._others(session, question, failed) if not each.media.is_silent]
        return any(asked.is_silent or each.open_calls < asked.open_calls for each in others)

    def _others(
        self, session: WorkerSession, question: "_Question", failed: Sequence[WorkerSession]
    ) -> list[WorkerSession]:
        """Return the workers that may be asked after this one."""
        return [each for each in self._able(question) if each is not session and each not in failed]

    def _choose(self, question: "_Question", failed: Sequence[WorkerSession]) -> WorkerSession:
        able = self._able(question)
        if not able and (takes := self._taking(question)):
            lacking = next(need for need in sorted(question.needs) if any(need in each.unsupported for each in takes))
            raise _unable(lacking, question.model)
        found = [each for each in able if each not in failed]
        if not found:
            model = question.model
            reason = self._workers.unavailable_reason(model) or f"No other worker of {model} takes media right now."
            raise Unavailable(reason, retry_after_s=1)
        return min(found, key=question.rank)

    def _able(self, question: "_Question") -> list[WorkerSession]:
        """Return the workers that can answer, whether they have failed or not."""
        return [each for each in self._taking(question) if each.unsupported.isdisjoint(question.needs)]

    def _taking(self, question: "_Question") -> list[WorkerSession]:
        candidates = self._workers.candidates_to_place(question.model, 0, question.placement)
        return [each for each in candidates if each.takes_media]


class _Question(NamedTuple):
    model: str
    items: Sequence[MediaContent]
    placement: Placement
    needs: Set[str]
    """What of workers, by the names with which they announce what they lack."""

    def rank(self, session: WorkerSession) -> tuple[bool, int, int, int, bytes]:
        """Return what makes a worker the better choice, the smaller it is."""
        media, name = session.media, b"".join(item.digest for item in self.items) + session.address.encode()
        of_equals = hashlib.blake2b(name, digest_size=8).digest()
        return media.is_silent, media.lacks(self.items), media.open_calls, session.open_slots, of_equals


def _unable(lacking: str, model: str) -> TokenwireError:
    if lacking == MEDIA_FEATURES:
        return Unsupported("plain vLLM servers cannot")
    if lacking == IMAGE_EMBEDS:  # here and below as vLLM says it, which clients may match
        return InvalidRequest("You must set `--enable-mm-embeds` to input `image_embeds`", param=IMAGE_EMBEDS)
    if lacking == IMAGE:
        return InvalidRequest("At most 0 image(s) may be provided in one prompt.", param="messages")
    message = f"No worker of {model} supports mm_processor_kwargs or media_io_kwargs."
    return InvalidRequest(message + remedy_for(MEDIA_OPTIONS), param=MEDIA_OPTIONS)
