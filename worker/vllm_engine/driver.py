"""The interface of drivers, which submit sequences to AsyncLLM and yield whole steps, and what they share."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Protocol

from tokenwire.protocol.vllm_names import FINISH_REASONS
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.interface import EngineSequence, Step


@dataclass(frozen=True, slots=True)
class VllmRequest:
    """A request in vLLM's types, for all of its sequences."""

    request_id: str
    prompt: Any
    """vLLM's TokensInput."""
    params: Any
    """vLLM's SamplingParams, n included."""
    inputs: dict[str, Any]
    """Keyword arguments that `generate` and `process_inputs` share."""
    reasoning: dict[str, Any]
    """reasoning_ended and reasoning_parser_kwargs, if given."""
    tenant: str = ""
    """Whose it is, if it has a grammar."""


class Driver(Protocol):
    """Runs sequences on one AsyncLLM."""

    async def start(self) -> None:
        """Start reading the engine's output."""

    async def submit(self, vllm_request: VllmRequest, sequences: list[EngineSequence]) -> None:
        """Start all sequences of a request, or none and raise."""

    async def abort(self, sequences: list[EngineSequence]) -> None:
        """End live sequences with an ABORT finish; unknown ones are ignored."""

    def steps(self) -> AsyncIterator[Step]:
        """Yield steps until `stop`, or until the engine dies."""

    async def stop(self) -> None:
        """Abort live sequences and end the steps."""


class StepQueue:
    """Steps from a driver to their consumer."""

    def __init__(self) -> None:
        self._steps: deque[Step] = deque()
        self._ready = asyncio.Event()
        self._error: Exception | None = None
        self.closed = False

    def put(self, step: Step) -> None:
        """Append a step."""
        self._steps.append(step)
        self._ready.set()

    @property
    def newest(self) -> Step | None:
        """The last step that is not consumed yet and may still be changed."""
        return self._steps[-1] if self._steps else None

    def close(self, error: Exception | None = None) -> None:
        """End the iteration once all steps are consumed, raising the error if there is one."""
        if not self.closed:
            self.closed, self._error = True, error
            self._ready.set()

    async def drain(self) -> AsyncIterator[Step]:
        """Yield steps until the queue is closed."""
        while True:
            while self._steps:
                yield self._steps.popleft()
            if self.closed:
                break
            self._ready.clear()
            await self._ready.wait()
        if self._error is not None:
            raise self._error


INTERNAL_ERROR = "The engine reported an internal error for this sequence."
GRAMMAR_STUCK = "The grammar allows no further token, so the sequence cannot continue."


def finish(
    reason: str,
    stop_reason: int | str | None,
    new_token_ids: list[int],
    kv_transfer: Any = None,
    has_grammar: bool = False,
) -> pb.Finish:
    """Build a terminal event from vLLM's; a stop without a reason is EOS, the last new token."""
    event = pb.Finish(reason=FINISH_REASONS[reason])
    if event.reason == pb.FINISH_REASON_STOP:
        if isinstance(stop_reason, int):
            event.stop_token_id = stop_reason
        elif new_token_ids:
            event.eos_token_id = new_token_ids[-1]
    elif event.reason == pb.FINISH_REASON_ERROR:
        # A failure with a new token means that the grammar rejected it; other failures come without tokens.
        event.error_message = GRAMMAR_STUCK if has_grammar and new_token_ids else INTERNAL_ERROR
    if kv_transfer:
        event.kv_transfer_params_json = json.dumps(kv_transfer, default=str)
    return event


def aborted() -> pb.Finish:
    """Return the terminal event of an aborted sequence: vLLM emits none after an abort."""
    return pb.Finish(reason=pb.FINISH_REASON_ABORT)


def failed(message: str) -> pb.Finish:
    """Return the terminal event of a sequence that failed in the engine."""
    return pb.Finish(reason=pb.FINISH_REASON_ERROR, error_message=message)


def handed_back_error(message: str) -> pb.Finish:
    """Return the terminal event of a sequence whose engine died, so that it may continue on another worker."""
    return pb.Finish(reason=pb.FINISH_REASON_ERROR, error_message=message, handed_back=True)
