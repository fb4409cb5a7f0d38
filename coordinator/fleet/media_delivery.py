"""Puts the media of requests to one worker, each item once, before the requests that need them are sent there."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

import grpc

from tokenwire.coordinator.fleet.call_watch import CallWatch
from tokenwire.coordinator.fleet.media_answers import Expansion, check_missing, expansion_of, rendered
from tokenwire.coordinator.fleet.slots import SlotTable
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.coordinator.fleet.transport.base import WorkerTransport
from tokenwire.coordinator.fleet.transport.grpc import check_cancelled, is_too_large
from tokenwire.coordinator.media.content import MediaContent, media_item
from tokenwire.errors import ProtocolError, TokenwireError, Unavailable, from_status, reply_error
from tokenwire.peer_auth.message_parts import UNREADABLE
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.v1 import inference_pb2_grpc

_CHUNK_BYTES = 256 * 1024
_MOST_KNOWN = 65_536
_MOST_PUTS = 3
"""Of a request whose items the worker drops again and again."""
_TIMEOUT_S = 60.0
"""Of a call: a worker that does not answer keeps neither pictures in memory, nor prompts that others can expand."""

SendCommand = Callable[[pb.SessionRequest], None]
EndSlots = Callable[[Sequence[int], TokenwireError], None]
EndSession = Callable[[ProtocolError], None]
Answer = TypeVar("Answer")


class MediaDelivery:
    """What one worker has of the media of requests. The worker decides: what it says it lacks is put again."""

    def __init__(
        self,
        slots: SlotTable,
        send: SendCommand,
        end: EndSlots,
        end_session: EndSession,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`send` queues a command of the session; `end` ends slots that were not sent with an error.

        `end_session` ends the session with a worker whose answers cannot be, and with it all of its slots.
        """
        self._slots = slots
        self._clock = clock
        self._watches = {method: CallWatch(clock) for method in ("Put", "Expand")}
        self._send = send
        self._end = end
        self._end_session = end_session
        self._transport: WorkerTransport | None = None
        self._known: OrderedDict[bytes, None] = OrderedDict()
        """Digests of what was put, the latest last."""
        self._putting: dict[bytes, asyncio.Task[None]] = {}
        self._submitting: set[asyncio.Task[None]] = set()

    @property
    def is_silent(self) -> bool:
        """Whether the worker has not answered calls of a method for a while, though there were some."""
        return any(watch.is_silent for watch in self._watches.values())

    @property
    def open_calls(self) -> int:
        """How many calls the worker has not answered yet."""
        return sum(watch.open for watch in self._watches.values())

    def begin(self, transport: WorkerTransport) -> None:
        """Begin with a worker that is connected, of which nothing is known."""
        self._transport = transport
        self._watches = {method: CallWatch(self._clock) for method in self._watches}

    def close(self) -> None:
        """End all puts: the session has ended."""
        self._transport = None
        self._known.clear()
        for task in (*self._putting.values(), *self._submitting):
            task.cancel()
        self._putting.clear()

    def lacks(self, items: Iterable[MediaContent]) -> int:
        """Return how many bytes of items would have to be put, beside those that are being put."""
        distinct = {each.digest: each for each in items if not self._has(each) and each.digest not in self._putting}
        return sum(len(item.data) for item in distinct.values())

    def submit(self, submission: Submission, slots: Sequence[int]) -> None:
        """Send a request with media once the worker has these; its slots are taken already."""
        task = asyncio.create_task(self._submit(submission, slots))
        self._submitting.add(task)
        task.add_done_callback(self._submitting.discard)

    def submit_again(self, submission: Submission | None, refusal: pb.Refusal) -> bool:
        """Send a request that was refused because of missing media once more; return whether that is worth it.

        Raises ProtocolError for media that the request does not have.
        """
        if submission is None or submission.media is None or refusal.code != pb.REFUSAL_CODE_MEDIA_MISSING:
            return False
        if submission.puts >= _MOST_PUTS:
            return False
        check_missing(refusal.missing, submission.media.items)
        submission.puts += 1
        self._forget(refusal.missing)
        self.submit(submission, refusal.slots[:])
        return True

    async def expand(
        self,
        token_ids: Sequence[int],
        items: Sequence[MediaContent],
        options_json: str | None,
        max_token_ids: int,
        cache_salt: str | None = None,
        mm_payload: str = "",
        tenant: str = "",
    ) -> Expansion:
        """Return a prompt as the worker's engine sees it. The salt is for workers that compute it.

        With `mm_payload`, it has the features of a rendered request. Raises InvalidRequest, PromptTooLong for more than
        `max_token_ids`, Overloaded, EngineFailed, Unsupported, or Unavailable, also for an answer that cannot be: it
        ends the session.
        """
        media = [media_item(item, options_json) for item in items]
        request = pb.ExpandRequest(
            token_ids=token_ids,
            media=media,
            max_token_ids=max_token_ids,
            cache_salt=cache_salt,
            mm_payload=mm_payload,
            tenant=tenant,
        )
        try:
            for _ in range(_MOST_PUTS):
                await self._put(items)
                response, features = await self._call("Expand", lambda stub: _expand(stub, request))
                if not response.missing:
                    return expansion_of(response, items, max_token_ids, features)
                check_missing(response.missing, items)
                self._forget(response.missing)
        except ProtocolError as error:
            self._end_session(error)
            raise Unavailable(f"The worker was lost ({error.message}).", retry_after_s=1) from error
        raise Unavailable("The worker keeps dropping the media of the request.", retry_after_s=1)

    async def _submit(self, submission: Submission, slots: Sequence[int]) -> None:
        assert submission.media is not None
        try:
            await self._put(submission.media.items)
        except ProtocolError as error:
            self._end_session(error)
            return
        except TokenwireError as error:
            self._end(slots, error)
            return
        except Exception as error:
            self._end(slots, reply_error(error))
            return
        gone = [slot for slot in slots if self._slots.listeners[slot] is self._slots.discard]
        if len(gone) == len(slots):  # the worker has never heard of them
            self._end(slots, Unavailable("The request was aborted."))
            return
        self._send(submission.message(slots))
        if gone:
            self._send(pb.SessionRequest(abort=pb.Abort(slots=gone)))

    async def _put(self, items: Iterable[MediaContent]) -> None:
        """Put what the worker does not have; an item that is being put already is waited for."""
        waiting = []
        for item in items:
            if self._has(item):
                self._known.move_to_end(item.digest)
                continue
            task = self._putting.get(item.digest)
            if task is None:
                task = self._putting[item.digest] = asyncio.create_task(self._put_one(item))
                task.add_done_callback(_retrieve_error)
            waiting.append(task)
        for task in waiting:
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError as error:
                check_cancelled()
                raise Unavailable("The worker was lost.", retry_after_s=1) from error

    async def _put_one(self, item: MediaContent) -> None:
        try:
            await self._call("Put", lambda stub: _put(stub, item))
            self._known[item.digest] = None
            if len(self._known) > _MOST_KNOWN:
                self._known.popitem(last=False)
        finally:
            self._putting.pop(item.digest, None)

    async def _call(self, method: str, call: Callable[[inference_pb2_grpc.MediaStub], Awaitable[Answer]]) -> Answer:
        stub = None if self._transport is None else self._transport.media
        if stub is None:
            raise Unavailable("The worker takes no media, or is not connected.", retry_after_s=1)
        watch = self._watches[method]
        watch.begin()
        try:
            answer = await call(stub)
            watch.on_answer()
        except grpc.aio.AioRpcError as error:
            check_cancelled()
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise Unavailable(f"The worker took no media within {_TIMEOUT_S:g} s.", retry_after_s=1) from error
            watch.on_answer()
            if is_too_large(error):
                raise ProtocolError(f"it answered a call for media with too much: {error.details()}") from error
            raise from_status(error.code(), error.details() or error.code().name) from error
        except (grpc.aio.UsageError, asyncio.CancelledError) as error:
            check_cancelled()
            raise Unavailable("The worker was lost.", retry_after_s=1) from error
        except TokenwireError as error:  # of what is no gRPC
            if not isinstance(error, Unavailable):
                watch.on_answer()
            raise
        finally:
            watch.end()
        return answer

    def _has(self, item: MediaContent) -> bool:
        return item.digest in self._known

    def _forget(self, digests: Iterable[bytes]) -> None:
        for digest in digests:
            self._known.pop(digest, None)


async def _put(stub: inference_pb2_grpc.MediaStub, item: MediaContent) -> None:
    await stub.Put(_chunks(item), timeout=_TIMEOUT_S)


async def _expand(
    stub: inference_pb2_grpc.MediaStub, request: pb.ExpandRequest
) -> tuple[pb.ExpandResponse, bytes | None]:
    """Return the response, and the features if they are asked for."""
    if not request.mm_payload:
        response = await stub.Expand(request, timeout=_TIMEOUT_S)
        if response is None:
            raise ProtocolError(f"the worker expanded a prompt to {UNREADABLE}")
        return response, None
    call = stub.Render(pb.RenderRequest(prompt=request), timeout=_TIMEOUT_S)
    try:
        return await rendered(call, request.mm_payload)
    finally:
        call.cancel()


async def _chunks(item: MediaContent) -> AsyncIterator[pb.PutRequest]:
    view = memoryview(item.data)
    yield pb.PutRequest(digest=item.digest, size=len(view), data=bytes(view[:_CHUNK_BYTES]))
    for start in range(_CHUNK_BYTES, len(view), _CHUNK_BYTES):
        yield pb.PutRequest(data=bytes(view[start : start + _CHUNK_BYTES]))


def _retrieve_error(task: "asyncio.Task[None]") -> None:
    """Keep asyncio from logging the error of a put that nobody waits for any more."""
    if not task.cancelled():
        task.exception()
