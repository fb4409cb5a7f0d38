"""One coordinator's session: commands in, frames out, and every open slot aborted when it ends."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Protocol

import grpc

from tokenwire.errors import EngineFailed, InvalidRequest, MediaMissing, TokenwireError, WorkerDraining
from tokenwire.protocol.command_batch import commands_of
from tokenwire.protocol.packed_ids import prompt_ids
from tokenwire.protocol.version import check_peer
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.frame_buffer import FrameBuffer
from tokenwire.worker.engine.interface import Engine, EngineSequence

log = logging.getLogger(__name__)

SessionContext = grpc.aio.ServicerContext[pb.SessionRequest, pb.SessionResponse]


class SessionHost(Protocol):
    """What a session needs of its worker; see WorkerServer."""

    @property
    def is_draining(self) -> bool:
        """Whether new requests are refused."""

    def welcome(self) -> pb.Welcome:
        """Describe the worker as it is now."""

    def was_aborted(self, submit: pb.Submit | pb.Pool) -> bool:
        """Return whether a resumed request was aborted before it came here."""

    def check_adapter(self, adapter: pb.LoraAdapter) -> None:
        """Raise InvalidRequest if an adapter may not be read from its path."""

    def on_submitted(self, sequences: list[EngineSequence], prompt_tokens: int) -> None:
        """Called with sequences that the engine accepted, and the tokens that it computes for each."""


class Session:
    """The worker's side of one stream: owns its slots, each of which gets one terminal event."""

    def __init__(self, engine: Engine, host: SessionHost) -> None:
        self._engine = engine
        self._host = host
        self._slots: dict[int, EngineSequence] = {}
        self._preparing: dict[asyncio.Task[None], int] = {}
        """Submits that the engine does not have yet, with their numbers of sequences."""
        self._closing: asyncio.Task[None] | None = None
        self._frame_buffer = FrameBuffer(self._close_slot)
        self.coordinator_id = "?"

    @property
    def open_slots(self) -> int:
        """Number of slots whose terminal event is not in the frame buffer yet."""
        return len(self._slots)

    @property
    def preparing(self) -> int:
        """Number of sequences that wait for what the engine has to prepare for them."""
        return sum(self._preparing.values())

    @property
    def frame_buffer(self) -> FrameBuffer:
        """Buffer of this session's output."""
        return self._frame_buffer

    def announce_drain(self, deadline_s: float) -> None:
        """Send a Draining event, so that the coordinator sends new requests elsewhere."""
        draining = pb.Draining(deadline_ms=int(deadline_s * 1000))
        self._frame_buffer.add_event(pb.SessionResponse(draining=draining))

    def _close_slot(self, slot: int) -> None:
        self._slots.pop(slot, None)

    async def run(self, requests: AsyncIterator[pb.SessionRequest], context: SessionContext) -> None:
        """Serve the stream until either side ends it, then abort every open slot."""
        sender: asyncio.Task[None] | None = None
        try:
            self._accept_hello(await anext(requests, pb.SessionRequest()))
            await context.write(pb.SessionResponse(welcome=self._host.welcome()))
            sender = asyncio.create_task(self._send(context))
            async for request in requests:
                for command in commands_of(request):
                    await self._execute(command)
        except InvalidRequest as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, error.message)
        finally:
            # A second cancellation must leave nothing in the engine.
            self._closing = asyncio.create_task(self._close(sender))
            await asyncio.shield(self._closing)

    async def abort_requests(self, request_ids: set[str] | None) -> int:
        """Abort requests by id, all for None; return the number of this session's slots that were aborted."""
        open_sequences = self._slots.values()
        sequences = [each for each in open_sequences if request_ids is None or each.request_id in request_ids]
        if sequences:
            await self._engine.abort(sequences)
        return len(sequences)

    async def abort_all(self) -> None:
        """Abort every open slot."""
        sequences = list(self._slots.values())
        if sequences:
            log.info("session of %s ended: aborting %d open slot(s)", self.coordinator_id, len(sequences))
            await self._engine.abort(sequences)

    async def _close(self, sender: "asyncio.Task[None] | None") -> None:
        if sender is not None:
            sender.cancel()
            with contextlib.suppress(asyncio.CancelledError, grpc.RpcError, grpc.aio.UsageError):
                await sender
        await self._stop_preparing()
        await self.abort_all()

    async def _stop_preparing(self) -> None:
        """Cancel submits whose preparation has not ended."""
        for task in self._preparing:
            task.cancel()
        await asyncio.gather(*self._preparing, return_exceptions=True)

    def _accept_hello(self, first: pb.SessionRequest) -> None:
        if first.WhichOneof("command") != "hello":
            raise InvalidRequest("The first command of a session must be a Hello.")
        self.coordinator_id = first.hello.coordinator_id or "?"
        check_peer(first.hello.protocol, f"coordinator {self.coordinator_id}")

    async def _send(self, context: SessionContext) -> None:
        while True:
            for event in await self._frame_buffer.take():
                await context.write(event)

    async def _execute(self, command: pb.SessionRequest) -> None:
        match command.WhichOneof("command"):
            case "submit":
                await self._submit(command.submit)
            case "pool":
                await self._submit(command.pool)
            case "abort":
                slots = self._slots
                sequences = [slots[slot] for slot in command.abort.slots if slot in slots]
                if sequences:
                    await self._engine.abort(sequences)
            case other:
                log.warning("session of %s sent an unexpected command: %s", self.coordinator_id, other)

    async def _submit(self, submit: pb.Submit | pb.Pool) -> None:
        self._check_slots(submit)
        if self._host.was_aborted(submit):
            self._end_as_aborted(submit)
            return
        sampled_only = isinstance(submit, pb.Submit) and _scores_sampled(submit)
        sequences = [
            EngineSequence(self._frame_buffer, slot, submit.request_id, index, sampled_only)
            for index, slot in enumerate(submit.slots)
        ]
        try:
            if submit.lora.id:
                self._host.check_adapter(submit.lora)  # the engine reads it if it is not loaded
            self._admit(sequences)
        except TokenwireError as error:
            self._refuse(submit, sequences, error)
            return
        if _needs_preparation(submit):
            task = asyncio.create_task(self._start(submit, sequences))
            self._preparing[task] = len(sequences)
            task.add_done_callback(self._preparing.pop)
        else:
            await self._start(submit, sequences)

    async def _start(self, submit: pb.Submit | pb.Pool, sequences: list[EngineSequence]) -> None:
        try:
            if isinstance(submit, pb.Submit):
                prompt_tokens = len(prompt_ids(submit))
                await self._engine.submit(submit, sequences)
            else:
                prompt_tokens = len(submit.token_ids) // len(sequences)
                await self._engine.pool(submit, sequences)
            # Some may already have ended, and their slots may carry other requests.
            started = [sequence for sequence in sequences if self._slots.get(sequence.slot) is sequence]
            self._host.on_submitted(started, prompt_tokens)
        except TokenwireError as error:
            self._refuse(submit, sequences, error)
        except Exception as error:
            log.exception("failed to submit request %s to the engine", submit.request_id)
            self._refuse(submit, sequences, EngineFailed(f"The engine could not accept the request: {error}"))

    def _end_as_aborted(self, submit: pb.Submit | pb.Pool) -> None:
        log.info("request %s was aborted before it was resumed here", submit.request_id)
        now = self._host.welcome()
        self._frame_buffer.end_frame()  # it may have tokens of earlier weights
        for slot in submit.slots:
            self._frame_buffer.add_finish(slot, pb.Finish(reason=pb.FINISH_REASON_ABORT))
        self._frame_buffer.flush(now.load, now.weight_version)

    def _check_slots(self, submit: pb.Submit | pb.Pool) -> None:
        # A refusal would end another request's slots, so a coordinator that reuses slots loses its session.
        slots = list(submit.slots)
        if not slots or len(set(slots)) != len(slots) or not self._slots.keys().isdisjoint(slots):
            raise InvalidRequest(f"Request {submit.request_id} names no slots or slots in use: {slots}.")

    def _admit(self, sequences: list[EngineSequence]) -> None:
        if self._host.is_draining:
            raise WorkerDraining("The worker is draining; send the request to another one.")
        self._slots.update((sequence.slot, sequence) for sequence in sequences)

    def _refuse(self, submit: pb.Submit | pb.Pool, sequences: list[EngineSequence], error: TokenwireError) -> None:
        for sequence in sequences:
            self._slots.pop(sequence.slot, None)
        refusal = pb.Refusal(slots=submit.slots, code=error.refusal_code, message=error.message, param=error.param)
        if isinstance(error, MediaMissing):
            refusal.missing.extend(error.missing)
        self._frame_buffer.add_event(pb.SessionResponse(refusal=refusal))


def _scores_sampled(submit: pb.Submit) -> bool:
    """Let the engine score sampled tokens if their log-probabilities are to be sent beside them; return whether."""
    params = submit.sampling_params
    if not submit.sampled_logprobs or params.HasField("logprobs") or params.logprob_token_ids:
        return False
    params.logprobs = 0
    return True


def _needs_preparation(submit: pb.Submit | pb.Pool) -> bool:
    """Whether the engine compiles a grammar, loads an adapter or processes media first, which may take seconds."""
    if submit.HasField("lora"):
        return True
    return isinstance(submit, pb.Submit) and (
        submit.sampling_params.HasField("structured_outputs") or bool(submit.media)
    )
