"""The portable driver: AsyncLLM.generate with a task per sequence, for a vLLM without the core driver's internals."""

import asyncio
import logging
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from vllm.v1.engine.exceptions import EngineDeadError

from tokenwire.errors import EngineFailed, Unavailable
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.interface import EngineSequence, Step
from tokenwire.worker.vllm_engine.driver import StepQueue, VllmRequest, aborted, failed, finish, handed_back_error
from tokenwire.worker.vllm_engine.errors import DEAD, translate, vllm_errors
from tokenwire.worker.vllm_engine.grammars import GrammarCheck
from tokenwire.worker.vllm_engine.logprobs import flat_rows
from tokenwire.worker.vllm_engine.sampling import child_params
from tokenwire.worker.vllm_engine.weight_label import WeightLabel

log = logging.getLogger(__name__)

_HEALTH_INTERVAL_S = 1.0


class GenerateDriver:
    """Runs one `generate` per sequence and merges their outputs into steps."""

    def __init__(self, llm: Any, grammars: GrammarCheck, weight_label: WeightLabel) -> None:
        self._llm = llm
        self._grammars = grammars
        self._weight_label = weight_label
        self._queue = StepQueue()
        self._tasks: dict[EngineSequence, asyncio.Task[None]] = {}
        self._without_output: set[EngineSequence] = set()
        self._mergeable: tuple[Step, set[EngineSequence]] | None = None
        self._health_task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start a health check: the engine's death would go unnoticed while no sequence runs."""
        await self._llm.get_supported_tasks()  # cached from now on, so that refusals are immediate, see `submit`
        await self._weight_label.read(self._llm)
        self._health_task = asyncio.create_task(self._watch_health(), name="tokenwire-engine-watch")

    async def submit(self, vllm_request: VllmRequest, sequences: list[EngineSequence]) -> None:
        """Start all sequences of a request, or none and raise."""
        if self._queue.closed:
            raise Unavailable(DEAD)
        with vllm_errors():
            await self._grammars.verify(vllm_request.params, vllm_request.tenant)
        tasks: list[asyncio.Task[None]] = []
        for sequence in sequences:
            params = child_params(vllm_request.params, sequence.index)
            tasks.append(asyncio.create_task(self._consume(sequence, vllm_request, params)))
            self._tasks[sequence] = tasks[-1]
            self._without_output.add(sequence)
        # `generate` validates and sends the request before its first await, so one turn of the loop suffices.
        await asyncio.sleep(0)
        refused = [error for task in tasks if task.done() and not task.cancelled() and (error := task.exception())]
        if refused:
            for sequence in sequences:
                self._unregister(sequence)
            raise translate(refused[0] if isinstance(refused[0], Exception) else EngineFailed(DEAD))
        for sequence, task in zip(sequences, tasks, strict=True):
            task.add_done_callback(partial(self._on_task_done, sequence))

    async def _consume(self, sequence: EngineSequence, vllm_request: VllmRequest, params: Any) -> None:
        request_id = f"{sequence.index}_{vllm_request.request_id}"
        stream = self._llm.generate(
            vllm_request.prompt, params, request_id, **vllm_request.inputs, **vllm_request.reasoning
        )
        async for output in stream:
            if sequence in self._tasks:
                self._deliver(sequence, output, params.structured_outputs is not None)

    def _deliver(self, sequence: EngineSequence, output: Any, has_grammar: bool) -> None:
        step = self._step_for(sequence)
        completion = output.outputs[0]
        token_ids = list(completion.token_ids)
        weight_versions = getattr(completion, "weight_versions", None)
        if weight_versions:
            self._weight_label.current = step.weight_version = weight_versions[-1].version
        step.sequences.append(sequence)
        step.token_ids.append(token_ids)
        if sequence in self._without_output:
            self._without_output.remove(sequence)
            info = pb.PrefillInfo(
                cached_tokens=output.num_cached_tokens or 0, created_cache_tokens=output.num_cache_creation_tokens
            )
            if output.prompt_logprobs:
                info.prompt_logprobs.CopyFrom(flat_rows(output.prompt_logprobs))
            step.prefills.append((sequence, info))
        if completion.logprobs:
            rows = flat_rows(completion.logprobs)
            if sequence.sampled_only:
                step.scores.append((sequence, list(rows.logprobs[:: rows.width])))
            else:
                step.logprobs.append((sequence, rows))
        if completion.finish_reason is not None:
            self._unregister(sequence)
            reasons = (completion.finish_reason, completion.stop_reason)
            event = finish(*reasons, token_ids, output.kv_transfer_params, has_grammar)
            step.finishes.append((sequence, event))
        step.load = self._load()

    def _step_for(self, sequence: EngineSequence) -> Step:
        """Return the unconsumed step, unless the sequence is in it already, or append a new one."""
        if self._mergeable is not None and self._mergeable[0] is self._queue.newest:
            step, members = self._mergeable
            if sequence not in members:
                members.add(sequence)
                return step
        step = Step(weight_version=self._weight_label.current)
        self._mergeable = (step, {sequence})
        self._queue.put(step)
        return step

    def _on_task_done(self, sequence: EngineSequence, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, EngineDeadError):
            self._fail()
        elif sequence in self._tasks:
            message = f"The engine ended the sequence: {error}" if error else "The engine ended the sequence early."
            self._unregister(sequence)
            self._put([(sequence, failed(message))])

    async def abort(self, sequences: list[EngineSequence]) -> None:
        """End live sequences with an ABORT finish; unknown ones are ignored."""
        live = [sequence for sequence in sequences if self._unregister(sequence)]
        if live:
            self._put([(sequence, aborted()) for sequence in live])

    def _unregister(self, sequence: EngineSequence) -> bool:
        self._without_output.discard(sequence)
        task = self._tasks.pop(sequence, None)
        if task is not None and task is not asyncio.current_task():
            task.cancel()  # `generate` aborts the request when it is cancelled
        return task is not None

    def steps(self) -> AsyncIterator[Step]:
        """Yield steps until `stop`, or until the engine dies."""
        return self._queue.drain()

    async def stop(self) -> None:
        """Abort live sequences and end the steps."""
        if self._health_task is not None:
            self._health_task.cancel()
        await self.abort(list(self._tasks))
        self._queue.close()

    async def _watch_health(self) -> None:
        while not self._llm.errored:  # noqa: ASYNC110  (vLLM has no event for it)
            await asyncio.sleep(_HEALTH_INTERVAL_S)
        self._fail()

    def _fail(self) -> None:
        if self._queue.closed:
            return
        log.error("%s", DEAD)
        finishes = [(sequence, handed_back_error(DEAD)) for sequence in self._tasks]
        for sequence in list(self._tasks):
            self._unregister(sequence)
        self._put(finishes)
        self._queue.close(EngineFailed(DEAD))

    def _put(self, finishes: list[tuple[EngineSequence, pb.Finish]]) -> None:
        self._mergeable = None
        self._queue.put(Step(finishes=finishes, load=self._load(), weight_version=self._weight_label.current))

    def _load(self) -> pb.Load:
        running = min(len(self._tasks), self._llm.vllm_config.scheduler_config.max_num_seqs)
        return pb.Load(running=running, waiting=len(self._tasks) - running)
