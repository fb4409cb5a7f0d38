"""The driver of engines that pool: inputs go to the engine core, results come back with whole steps."""

from dataclasses import dataclass
from typing import Any

from tokenwire.errors import InvalidRequest, Unavailable
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.interface import EngineSequence
from tokenwire.worker.vllm_engine.core_driver import CoreDriver
from tokenwire.worker.vllm_engine.driver import VllmRequest
from tokenwire.worker.vllm_engine.errors import DEAD, vllm_errors
from tokenwire.worker.vllm_engine.pooling import pooled

_GENERATES_NOTHING = "This model does not support generation"
"""vLLM's message."""


@dataclass(frozen=True, slots=True)
class _Input:
    """What its result needs."""

    tokens: int
    dtype: str


class PoolingDriver(CoreDriver):
    """A core driver whose sequences are inputs: each has one result and no tokens."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._inputs: dict[str, _Input] = {}
        """By request id."""

    async def submit(self, vllm_request: VllmRequest, sequences: list[EngineSequence]) -> None:
        """Refuse what is to be generated. Raises InvalidRequest."""
        raise InvalidRequest(_GENERATES_NOTHING)

    async def pool(self, requests: list[VllmRequest], dtype: str, sequences: list[EngineSequence]) -> None:
        """Start one input for each sequence, or none and raise. Results are of this type."""
        if self._queue.closed or self._llm.errored:
            raise Unavailable(DEAD)
        with vllm_errors():
            self._check_limits(len(sequences))
            processed = [self._processed(request) for request in requests]
            for each in processed:
                self._inputs[each.request_id] = _Input(len(each.prompt_token_ids), dtype)
            try:
                await self._add(processed, sequences)
            except BaseException:
                for each in processed:
                    self._inputs.pop(each.request_id, None)
                raise

    def _processed(self, request: VllmRequest) -> Any:
        arguments = (request.request_id, request.prompt, request.params, self._tasks)
        processed = self._processor.process_inputs(*arguments, **request.inputs)
        self._processor.assign_request_id(processed)
        return processed

    def _register(self, child: Any, sequence: EngineSequence) -> None:
        self._live[child.request_id] = sequence
        self._ids[sequence] = child.request_id
        self._statistics.track(child)
        self._queued_tokens += self._inputs[child.request_id].tokens

    def _unregister(self, request_id: str) -> str:
        self._queued_tokens -= self._inputs.pop(request_id).tokens
        return super()._unregister(request_id)

    def _finish(self, output: Any) -> pb.Finish:
        if output.pooling_output is None:
            return super()._finish(output)
        return pooled(output, self._inputs[output.request_id].dtype)
