"""Responses that run in the background: they go on when their clients leave, and end by themselves, cancel or drain."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tokenwire.coordinator.api.json_pieces import in_turns
from tokenwire.coordinator.api.json_text import json_bytes
from tokenwire.coordinator.api.message_parts import PartStream
from tokenwire.coordinator.api.openai.chat import ChatCall
from tokenwire.coordinator.api.respond import end_reply
from tokenwire.coordinator.api.responses.event_log import EventLog
from tokenwire.coordinator.api.responses.events import ResponseEvents
from tokenwire.coordinator.api.responses.recorder import Recorder
from tokenwire.coordinator.api.responses.response import ResponseObject, Status, response_pieces
from tokenwire.coordinator.generation.context import RequestContext
from tokenwire.coordinator.generation.service import GenerationHandle, GenerationService
from tokenwire.coordinator.http.connection import ignore
from tokenwire.coordinator.output.collect import CollectedChoice, CollectedReply
from tokenwire.coordinator.output.sse import StreamedReply
from tokenwire.coordinator.response_store.settings import ResponseStoreSettings
from tokenwire.coordinator.response_store.store import ResponseKey, ResponseStore
from tokenwire.coordinator.response_store.stored_response import StoredResponse
from tokenwire.errors import EngineFailed, InvalidRequest, Overloaded, TokenwireError, Unavailable

log = logging.getLogger(__name__)

_RENEWAL_S = 1.0
"""How often other processes learn what runs here, and this one what is to stop."""
LOG_SHARE = 64
"""The events of one response may take this fraction of the store's memory."""
Complete = Callable[[list[CollectedChoice]], Awaitable[dict[str, Any]]]
"""Returns the Response object of a reply that is not streamed."""
_Outcome = tuple[Status, bytes]
"""How a response ended, and its Response object as JSON."""
_Reply = tuple[CollectedReply | StreamedReply, Callable[[], Awaitable[_Outcome]]]
"""A reply, and what waits for its end."""


class _NobodyListens:
    """The connection of a request whose client may leave."""

    congested = lost = was_cut = False
    share = ""

    def watch(self, on_lost: Callable[[], None], on_drained: Callable[[], None]) -> None:
        """Do nothing."""

    def write(self, data: bytes) -> None:
        """Do nothing."""

    def hold(self, size_bytes: int) -> None:
        """Do nothing."""

    def cut(self) -> None:
        """Do nothing."""

    async def flush(self) -> None:
        """Do nothing."""

    def release(self) -> None:
        """Do nothing."""


@dataclass(eq=False, slots=True)
class BackgroundResponse:
    """One that runs."""

    call: ChatCall
    response: ResponseObject
    recorder: Recorder
    context: RequestContext
    complete: Complete
    log: EventLog | None = None
    """Its events; None: it was not requested as a stream."""
    stop: Callable[[], None] = ignore
    """Ends its generation."""
    is_cancelled: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    outcome: bytes = b""
    """The Response object as JSON, when it has ended."""

    @property
    def status(self) -> Status:
        """Its status until it has ended."""
        return "queued" if self.context.record.placed_at is None else "in_progress"

    def current(self) -> dict[str, Any]:
        """Return the Response object as it is now."""
        return self.response.in_progress(self.status)

    def cancel(self) -> None:
        """End it as cancelled. Safe more than once."""
        self.is_cancelled = True
        self.stop()


class BackgroundResponses:
    """All that run in this process."""

    def __init__(self, generation: GenerationService, store: ResponseStore, settings: ResponseStoreSettings) -> None:
        self._generation = generation
        self.store = store
        """Where they and all others are stored."""
        self._limit = settings.max_background
        self._log_bytes = settings.max_bytes // LOG_SHARE
        self._running: dict[ResponseKey, BackgroundResponse] = {}
        self._taken: dict[ResponseKey, str] = {}
        """The keys of those that run or are about to, each with the share that it counts for."""
        self._renewing: asyncio.Task[None] | None = None

    def find(self, key: ResponseKey) -> BackgroundResponse | None:
        """Return one that runs here."""
        return self._running.get(key)

    async def start(self, run: BackgroundResponse, *, streamed: bool) -> None:
        """Submit one, and let it run. Raises what submitting it raises, Overloaded, and InvalidRequest."""
        self._take(run)
        try:
            run.context.connection = _NobodyListens()
            reply = self._streamed(run) if streamed else self._collected(run)
            run.context.handle = handle = await self._generation.start(run.call.prepared, reply[0], run.context)
        except BaseException:
            self._forget(run)
            raise
        self._running[run.recorder.key] = run
        run.stop = partial(_stop, handle, reply[0])
        run.recorder.put(run.response.in_progress())
        run.context.goes_on = task = asyncio.create_task(self._run(run, handle, reply))
        run.context.readiness.tasks.add(task)
        task.add_done_callback(run.context.readiness.tasks.discard)
        if self._renewing is None:
            self._renewing = asyncio.create_task(self._renew())

    async def close(self) -> None:
        """End what still runs, and close the store."""
        tasks = [run.context.goes_on for run in self._running.values() if run.context.goes_on is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._renewing is not None:
            self._renewing.cancel()
        await self.store.close()

    def _take(self, run: BackgroundResponse) -> None:
        """Take a place of the limit, and the key. Raises Overloaded and InvalidRequest."""
        key, share = run.recorder.key, run.context.caller.share
        if key in self._taken:
            raise InvalidRequest(f"A response with the id {run.recorder.id!r} is running.", param="request_id")
        of_share = sum(each == share for each in self._taken.values())
        most_of_share = max(1, (self._limit - len(self._taken) + of_share) // 2)  # half of what others leave
        if share and of_share >= most_of_share:
            raise _too_many(f"{of_share} responses of this client", f"{most_of_share} of {self._limit}")
        if len(self._taken) >= self._limit:
            raise _too_many(f"{len(self._taken)} responses", str(self._limit))
        self._taken[key] = share

    def _forget(self, run: BackgroundResponse) -> None:
        del self._taken[run.recorder.key]
        self._running.pop(run.recorder.key, None)

    def _collected(self, run: BackgroundResponse) -> _Reply:
        reply = CollectedReply(run.call.prepared.choices)

        async def outcome() -> _Outcome:
            choices = await reply.wait()
            return await _encoded(run.response.cancelled([]) if run.is_cancelled else await run.complete(choices))

        return reply, outcome

    def _streamed(self, run: BackgroundResponse) -> _Reply:
        prepared, ended = run.call.prepared, list[_Outcome]()
        style = run.call.body.logprob_style(run.call.api)
        events = ResponseEvents(run.response, style, lambda status, body: ended.append((status, body)))
        encoder = PartStream(run.call, events)
        reply = StreamedReply(encoder, prepared.choices, prepared.prompt_tokens, prepared.request.stream_interval)
        run.log = EventLog(self._log_bytes)
        reply.attach(run.log)

        async def outcome() -> _Outcome:
            try:
                await reply.wait()
            except asyncio.CancelledError:
                reply.fail(_drained(run))
            return ended[0] if ended else await _encoded(run.response.cancelled(events.items))

        return reply, outcome

    async def _run(self, run: BackgroundResponse, handle: GenerationHandle, reply: _Reply) -> None:
        """Wait for the end of one, and store it. Whatever happens, nothing waits for it afterwards."""
        try:
            status, run.outcome = await _outcome(run, reply)
            if run.log is None:
                run.recorder.put_encoded(status, run.outcome)
            else:
                run.recorder.put_encoded(status, run.outcome, run.log.kept(), run.log.first)
        finally:
            end_reply(run.context, run.call.prepared, reply[0], handle)
            if run.log is not None:
                run.log.end()
            self._forget(run)
            run.ended.set()

    async def _renew(self) -> None:
        """Tell other processes what runs here, while anything does."""
        while self._running:
            for key in await self.store.renew(list(self._running)):
                run = self._running.get(key)
                if run is not None:
                    run.cancel()
            await asyncio.sleep(_RENEWAL_S)
        self._renewing = None


async def _encoded(response: dict[str, Any]) -> _Outcome:
    return response["status"], await in_turns(response_pieces(response))


async def _outcome(run: BackgroundResponse, reply: _Reply) -> _Outcome:
    """Return the end of one, whatever happens."""
    try:
        return await reply[1]()
    except asyncio.CancelledError:
        failed = run.response.failed([], _drained(run))
    except TokenwireError as error:
        failed = run.response.failed([], error)
    except Exception:
        log.exception("a response in the background failed")
        failed = run.response.failed([], EngineFailed("Internal server error"))
    return "failed", json_bytes(failed)


def _too_many(running: str, most: str) -> Overloaded:
    message = f"{running} are running in the background, of at most {most} (--max-background-responses)."
    return Overloaded(message, param="background", retry_after_s=5)


def _stop(handle: GenerationHandle, reply: CollectedReply | StreamedReply) -> None:
    handle.abort()
    reply.give_up()


def _drained(run: BackgroundResponse) -> TokenwireError:
    return run.context.drain_error or Unavailable("This server shut down before the response was finished.")


async def wait_for_end(store: ResponseStore, key: ResponseKey, timeout_s: float | None) -> StoredResponse | None:
    """Wait until a response that another process runs has ended; return it as it is then, or after a timeout."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            while True:
                (stored,) = await store.find([key])
                if stored is None or stored.has_ended or not await store.runs(key):
                    return stored
                await asyncio.sleep(_RENEWAL_S / 2)
    return (await store.find([key]))[0]
