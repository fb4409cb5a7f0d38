"""The fast driver: takes whole steps from the engine core, bypassing AsyncLLM's per-request output handling.

This is the only file that touches AsyncLLM's internals: `output_handler`, `input_processor`, `engine_core`.
"""

import asyncio
import contextlib
import inspect
import logging
from collections.abc import AsyncIterator
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

from vllm import exceptions
from vllm.v1.engine.exceptions import EngineDeadError

from tokenwire.errors import EngineFailed, Unavailable
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.interface import EngineSequence, Step
from tokenwire.worker.vllm_engine.driver import StepQueue, VllmRequest, aborted, finish, handed_back_error
from tokenwire.worker.vllm_engine.errors import DEAD, vllm_errors
from tokenwire.worker.vllm_engine.grammars import GrammarCheck
from tokenwire.worker.vllm_engine.logprobs import add_logprobs, columns_wanted, prompt_rows, scored_rows
from tokenwire.worker.vllm_engine.sampling import child_params, scored_ids
from tokenwire.worker.vllm_engine.statistics import Statistics
from tokenwire.worker.vllm_engine.weight_label import WeightLabel

log = logging.getLogger(__name__)

_INPUTS = ("supported_tasks", "lora_request", "priority", "data_parallel_rank", "trace_headers")


def missing_internals(llm: Any) -> list[str]:
    """Return the names of internals that the driver needs and this AsyncLLM lacks."""
    missing = [] if getattr(llm, "output_handler", llm) is None else ["an idle AsyncLLM.output_handler"]
    needed = {
        "input_processor": ("process_inputs", "assign_request_id"),
        "engine_core": ("add_request_async", "abort_requests_async", "get_output_async"),
    }
    for owner, methods in needed.items():
        part = getattr(llm, owner, None)
        missing += [f"AsyncLLM.{owner}.{name}" for name in methods if not callable(getattr(part, name, None))]
    process = getattr(getattr(llm, "input_processor", None), "process_inputs", None)
    if callable(process):
        known = inspect.signature(process).parameters
        missing += [f"process_inputs({name}=)" for name in _INPUTS if name not in known]
    return missing


@dataclass(slots=True)
class _Prefill:
    """What the prefill info of a sequence is made of."""

    prompt_tokens: int
    cached_elsewhere: int | None
    scored_ids: Any


class CoreDriver:
    """Feeds requests to the engine core and turns each of its messages into one step."""

    def __init__(self, llm: Any, grammars: GrammarCheck, weight_label: WeightLabel) -> None:
        self._llm = llm
        self._grammars = grammars
        self._weight_label = weight_label
        self._core = llm.engine_core
        self._processor = llm.input_processor
        self._queue = StepQueue()
        self._live: dict[str, EngineSequence] = {}
        self._ids: dict[EngineSequence, str] = {}
        self._prefills: dict[str, _Prefill] = {}
        self._queued_tokens = 0
        self._columns: dict[str, int] = {}
        self._with_grammar: set[str] = set()
        self._vocab_size = llm.model_config.get_vocab_size()
        self._loads: dict[int, Any] = {}
        self._statistics = Statistics(llm)
        self._tasks: Any = ()

    async def start(self) -> None:
        """Replace AsyncLLM's own output handler."""
        self._tasks = await self._llm.get_supported_tasks()
        await self._weight_label.read(self._llm)
        self._llm.output_handler = asyncio.create_task(self._run(), name="tokenwire-core-driver")

    async def submit(self, vllm_request: VllmRequest, sequences: list[EngineSequence]) -> None:
        """Start all sequences of a request, or none and raise."""
        with vllm_errors():
            request = await self._process(vllm_request)
            self._check_limits(len(sequences))
            self._processor.assign_request_id(request)
            for name, value in vllm_request.reasoning.items():
                setattr(request, name, value)
            await self._add(_children(request, len(sequences)), sequences)

    async def _process(self, vllm_request: VllmRequest) -> Any:
        if self._queue.closed or self._llm.errored:
            raise Unavailable(DEAD)
        params = vllm_request.params
        if params.prompt_logprobs and self._llm.vllm_config.cache_config.kv_sharing_fast_prefill:
            message = "--kv-sharing-fast-prefill produces incorrect prompt log-probabilities; start the engine without."
            raise exceptions.VLLMValidationError(message, parameter="prompt_logprobs")
        arguments = (vllm_request.request_id, vllm_request.prompt, params, self._tasks)
        if params.structured_outputs is not None:
            # Checking a grammar may take long: off the event loop, which carries all tokens.
            process = partial(self._processor.process_inputs, *arguments, **vllm_request.inputs)
            request = await self._grammars.in_thread(vllm_request.tenant, process)
            await self._grammars.reject(request.sampling_params, vllm_request.tenant)
            return request
        return self._processor.process_inputs(*arguments, **vllm_request.inputs)

    def _check_limits(self, n: int) -> None:
        # Not every vLLM has limits.
        limits = self._llm.vllm_config.scheduler_config
        max_requests = getattr(limits, "max_num_queued_reqs", None)
        max_tokens = getattr(limits, "max_num_queued_tokens", None)
        if max_requests is not None and len(self._live) + n > max_requests:
            raise exceptions.QueueOverflowError
        if max_tokens is not None and self._queued_tokens >= max_tokens:
            raise exceptions.MaxQueuedTokensError

    async def _add(self, children: list[Any], sequences: list[EngineSequence]) -> None:
        added: list[EngineSequence] = []
        try:
            for child, sequence in zip(children, sequences, strict=True):
                # Registered before it is sent: its first output may arrive during the await.
                self._register(child, sequence)
                added.append(sequence)
                await self._core.add_request_async(child)
        except BaseException:
            await self._cancel([self._unregister(self._ids[sequence]) for sequence in added if sequence in self._ids])
            raise

    def _register(self, child: Any, sequence: EngineSequence) -> None:
        request_id, params = child.request_id, child.sampling_params
        self._live[request_id] = sequence
        self._ids[sequence] = request_id
        self._statistics.track(child)
        prompt_tokens = len(child.prompt_token_ids)
        self._prefills[request_id] = _Prefill(prompt_tokens, _cached_elsewhere(params), scored_ids(params))
        self._queued_tokens += prompt_tokens
        columns = columns_wanted(params, self._vocab_size)
        if columns is not None:
            self._columns[request_id] = columns
        if params.structured_outputs is not None:
            self._with_grammar.add(request_id)

    def _unregister(self, request_id: str) -> str:
        del self._ids[self._live.pop(request_id)]
        self._columns.pop(request_id, None)
        self._with_grammar.discard(request_id)
        self._statistics.untrack(request_id)
        self._end_prefill(request_id)
        return request_id

    def _end_prefill(self, request_id: str) -> _Prefill | None:
        prefill = self._prefills.pop(request_id, None)
        if prefill is not None:
            self._queued_tokens -= prefill.prompt_tokens
        return prefill

    async def abort(self, sequences: list[EngineSequence]) -> None:
        """End live sequences with an ABORT finish; unknown ones are ignored."""
        live = [sequence for sequence in dict.fromkeys(sequences) if sequence in self._ids]
        request_ids = [self._unregister(self._ids[sequence]) for sequence in live]
        if live:
            # The core reports nothing about an aborted request and may never step again, so the end is reported here.
            self._put(finishes=[(sequence, aborted()) for sequence in live])
            self._record_idle()
            await self._cancel(request_ids)

    async def _cancel(self, request_ids: list[str]) -> None:
        with contextlib.suppress(EngineDeadError):
            await self._core.abort_requests_async(request_ids)

    def steps(self) -> AsyncIterator[Step]:
        """Yield steps until `stop`, or until the engine dies."""
        return self._queue.drain()

    async def stop(self) -> None:
        """Abort what is live and end the steps."""
        await self.abort(list(self._ids))
        self._queue.close()
        if self._llm.output_handler is not None:
            self._llm.output_handler.cancel()
            self._llm.output_handler = None

    async def _run(self) -> None:
        try:
            while True:
                self._queue.put(self._step(await self._core.get_output_async()))
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self._queue.closed:
            return
        message = DEAD if isinstance(error, EngineDeadError) else f"The engine's output could not be read: {error!r}"
        log.error("%s", message, exc_info=None if isinstance(error, EngineDeadError) else error)
        finishes = [(sequence, handed_back_error(message)) for sequence in self._ids]
        for request_id in list(self._live):
            self._unregister(request_id)
        self._put(finishes=finishes)
        self._queue.close(EngineFailed(message))

    def _put(self, finishes: list[tuple[EngineSequence, pb.Finish]]) -> None:
        self._queue.put(Step(finishes=finishes, load=self._load(), weight_version=self._weight_label.current))

    def _step(self, outputs: Any) -> Step:
        weight_version = getattr(outputs, "weight_version", None)
        if weight_version is not None:
            self._weight_label.current = weight_version
        self._statistics.record(outputs)
        step = Step(weight_version=self._weight_label.current)
        live, sequences, token_ids = self._live, step.sequences, step.token_ids
        columns, prefills = self._columns, self._prefills
        for output in outputs.outputs:
            request_id = output.request_id
            sequence = live.get(request_id)
            if sequence is None:
                continue  # aborted while the core was computing it
            sequences.append(sequence)
            token_ids.append(output.new_token_ids)
            if prefills and request_id in prefills:
                step.prefills.append((sequence, self._prefill(output)))
            if columns and output.new_logprobs is not None and request_id in columns:
                add_logprobs(step, sequence, output.new_logprobs, columns[request_id])
            # `is not None`, because FinishReason.STOP is 0.
            if output.finish_reason is not None:
                step.finishes.append((sequence, self._finish(output)))
                self._unregister(request_id)
        if outputs.scheduler_stats is not None:
            self._loads[outputs.engine_index] = outputs.scheduler_stats
        self._record_idle()
        step.load = self._load()
        return step

    def _prefill(self, output: Any) -> pb.PrefillInfo:
        prefill = self._end_prefill(output.request_id)
        info = pb.PrefillInfo()
        if output.prefill_stats is not None:
            info.cached_tokens = output.prefill_stats.num_cached_tokens
            info.created_cache_tokens = output.prefill_stats.num_cache_creation_tokens
        if prefill is not None and prefill.cached_elsewhere is not None:
            info.cached_tokens = prefill.cached_elsewhere
        if output.new_prompt_logprobs_tensors is not None:
            info.prompt_logprobs.CopyFrom(prompt_rows(output.new_prompt_logprobs_tensors))
        elif prefill is not None and prefill.scored_ids is not None and output.prompt_token_id_logprobs is not None:
            info.prompt_logprobs.CopyFrom(scored_rows(prefill.scored_ids, output.prompt_token_id_logprobs))
        return info

    def _finish(self, output: Any) -> pb.Finish:
        reason, ids = str(output.finish_reason), output.new_token_ids
        has_grammar = output.request_id in self._with_grammar
        return finish(reason, output.stop_reason, ids, output.kv_transfer_params, has_grammar)

    def _record_idle(self) -> None:
        # When its last request is aborted, the core does not step and so does not report.
        if not self._live:
            self._statistics.record_idle(self._loads)

    def _load(self) -> pb.Load:
        if not self._live:
            return pb.Load()
        if not self._loads:
            return pb.Load(running=len(self._live))
        loads = self._loads.values()
        return pb.Load(
            running=sum(stats.num_running_reqs for stats in loads),
            waiting=sum(stats.num_waiting_reqs + stats.num_skipped_waiting_reqs for stats in loads),
            kv_cache_usage=sum(stats.kv_cache_usage for stats in loads) / len(loads),
        )


def _children(request: Any, n: int) -> list[Any]:
    """Split a processed request into one per sequence, with the ids and seeds of vLLM's ParentRequest."""
    if n == 1:
        return [request]
    children = [copy(request) for _ in range(n)]
    for index, child in enumerate(children):
        child.request_id = f"{index}_{request.request_id}"
        child.sampling_params = child_params(request.sampling_params, index)
    return children


def _cached_elsewhere(params: Any) -> int | None:
    """Return how many prompt tokens a prefill worker had cached, if this engine only decodes."""
    transfer = (params.extra_args or {}).get("kv_transfer_params") or {}
    cached = transfer.get("remote_prefill_cached_tokens") if transfer.get("do_remote_prefill") else None
    return cached if isinstance(cached, int) else None
