"""The one service between routes and workers for pooling: prepares inputs, and submits them in pieces."""

import asyncio
import math
import time
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from tokenwire.coordinator.auth.caller import Caller
from tokenwire.coordinator.auth.rate_limit import Account
from tokenwire.coordinator.fleet.placed_memory import MemoryClaim
from tokenwire.coordinator.fleet.request_handle import Fleet, Placement
from tokenwire.coordinator.fleet.submission import PooledInputs, Submission
from tokenwire.coordinator.generation.context import RequestContext
from tokenwire.coordinator.generation.limits import check_sequences
from tokenwire.coordinator.generation.request_cost import check_inputs
from tokenwire.coordinator.generation.service import GenerationHandle
from tokenwire.coordinator.observability.record import RequestRecord
from tokenwire.coordinator.output.settings import ApiSettings
from tokenwire.coordinator.pooling.inputs import PreparedInputs, prepare_inputs
from tokenwire.coordinator.pooling.reply import InputListener, PooledReply
from tokenwire.coordinator.pooling.types import PoolingRequest
from tokenwire.coordinator.types import ServedModel, TextPrompt
from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb

_PIECE_TOKENS = 32 * 1024
"""Of the inputs that one worker gets at a time: some steps of an engine, so that others have their turn between."""


@dataclass(slots=True)
class PreparedPool:
    """A pooling request with its inputs as ids."""

    request: PoolingRequest
    model: ServedModel
    inputs: PreparedInputs
    lengths: Sequence[int]
    """Tokens of each input."""
    most_numbers: Sequence[int]
    """Of each input's result."""
    size_bytes: int
    """What the request takes until its response is sent."""

    def text(self) -> str:
        """Return the text of the first input."""
        first = self.request.inputs[0]
        return first.text if isinstance(first, TextPrompt) else self.model.tokenizer.decode(self.inputs.token_ids[0])


class PoolingService:
    """Carries pooling requests through the same fleet as generation."""

    def __init__(self, fleet: Fleet, settings: ApiSettings) -> None:
        self._fleet = fleet
        self._settings = settings

    async def prepare(self, request: PoolingRequest, model: ServedModel, caller: Caller) -> PreparedPool:
        """Render, tokenize and check the inputs of a request. Raises InvalidRequest or Unavailable."""
        placement = Placement(tenant=caller.share, weight=caller.weight)
        self._fleet.check_open(model.base_model, model.adapter_id, placement)
        check_sequences(1, len(request.inputs))
        inputs = await prepare_inputs(request, model)
        lengths = [len(ids) for ids in inputs.token_ids]
        width = 1 if model.pooling is None else model.pooling.width
        rows = lengths if request.params.task.startswith("token_") else [1] * len(lengths)
        results = sum(rows) * width * request.bytes_per_number
        kept = results, request.repeated_bytes
        size = check_inputs(len(lengths), sum(lengths), *kept, self._settings.max_request_bytes)
        return PreparedPool(request, model, inputs, lengths, [width * each for each in rows], size)

    async def start(self, prepared: PreparedPool, reply: PooledReply, context: RequestContext) -> GenerationHandle:
        """Submit the inputs in pieces, and record the request; the reply gets all results until the deadline.

        The handle is to be settled when the request ends. Raises InvalidRequest, DeadlineExceeded, Unavailable or
        Overloaded after aborting what was submitted and giving back what was reserved.
        """
        caller, record, model = context.caller, context.record, prepared.model
        _record(record, prepared)
        handle = await _reserve(sum(prepared.lengths), caller.account)
        context.memory = MemoryClaim(prepared.size_bytes, caller.share, caller.weight)
        placement = _placement(prepared, context)
        pieces = list(_pieces(prepared.lengths))
        try:
            if context.deadline is not None:
                handle.start_timer(context.time_for_reply_s(), reply.fail, context.deadline_error)
            for number, (start, end) in enumerate(pieces):
                submission = _submission(prepared, start, end, f"-{number}" if len(pieces) > 1 else "", context)
                listeners = [InputListener(index, reply) for index in range(start, end)]
                handle.handles.append(self._fleet.submit(model.base_model, submission, listeners, placement))
                placement = replace(placement, joins=True)
                await asyncio.sleep(0)
        except BaseException:
            handle.abort()
            handle.settle(0)
            raise
        context.body.release()
        return handle


def _pieces(lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last position, exclusive, of each piece."""
    start = tokens = 0
    for position, length in enumerate(lengths):
        if tokens and tokens + length > _PIECE_TOKENS:
            yield start, position
            start, tokens = position, 0
        tokens += length
    yield start, len(lengths)


def _placement(prepared: PreparedPool, context: RequestContext) -> Placement:
    return Placement(
        tenant=context.caller.share,
        weight=context.caller.weight,
        memory=context.memory,
        sequence_bytes=math.ceil(prepared.size_bytes / len(prepared.lengths)),
        on_placed=context.record.on_placed,
        revision=prepared.model.revision,
        # Vectors of two revisions cannot be compared.
        begun=len(prepared.lengths) > 1,
    )


async def _reserve(tokens: int, account: Account | None) -> GenerationHandle:
    """Reserve the tokens of a request; return its handle. Raises InvalidRequest or Overloaded."""
    quota = None if account is None else account.limits.tokens_per_minute
    if account is None or quota is None:
        return GenerationHandle()
    if tokens > quota:
        raise InvalidRequest(
            f"This API key has {quota} tokens per minute, and the request has {tokens}. Please send fewer inputs, or "
            "raise its `tokens_per_minute` in --api-keys-file.",
            param="input",
        )
    return GenerationHandle(reservation=await account.reserve(tokens))


def _record(record: RequestRecord, prepared: PreparedPool) -> None:
    """Record a request that is about to be submitted."""
    record.request_id, record.model = prepared.request.request_id, prepared.model.base_model
    record.choices, record.prompt_tokens = len(prepared.lengths), sum(prepared.lengths)
    record.submitted_at = time.monotonic()
    if record.keeps_prompt:
        record.prompt = prepared.text()


def _submission(prepared: PreparedPool, start: int, end: int, suffix: str, context: RequestContext) -> Submission:
    """Return what submits a piece of the inputs to a worker."""
    request, inputs, min_priority = prepared.request, prepared.inputs, context.caller.min_priority
    pooled = PooledInputs(request.params, prepared.lengths[start:end], inputs.second_begins[start:end])
    return Submission(
        request_id=request.request_id + suffix,
        prompt_token_ids=array("I", chain.from_iterable(inputs.token_ids[start:end])),
        max_tokens=0,
        priority=request.priority if min_priority is None else max(request.priority, min_priority),
        cache_salt=request.cache_salt,
        lora=prepared.model.lora or pb.LoraAdapter(),
        trace_headers=context.record.trace_headers,
        pooled=pooled,
    )
