"""vLLM's engine without a model: its executor returns the tokens of a script after each step's time.

`vllm serve MODEL --distributed-executor-backend benchmarks.standard.stub_executor.StubExecutor` schedules, batches and
serves as always; only nothing is computed. `--additional-config '{"script": [1, 2], "step_ms": 20}'` has the token ids
to generate, repeated, and the duration of a step.
"""

import time
from concurrent.futures import Future
from typing import Any

import numpy as np
import torch
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.executor.abstract import Executor
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.outputs import LogprobsLists, ModelRunnerOutput

_MEMORY = 2**30
"""Of a cache that holds nothing: room for half a million tokens."""


class StubExecutor(Executor):  # type: ignore[misc]
    """Generates the same tokens for each request."""

    def _init_executor(self) -> None:
        config = self.vllm_config.additional_config
        self._script: list[int] = config["script"]
        self._step_s = config["step_ms"] / 1000
        self._prompts: dict[str, int] = {}
        self._logprobs: dict[str, int] = {}
        self._ended = 0.0

    def collective_rpc(self, method: Any, *args: Any, **kwargs: Any) -> Any:
        """Answer as one worker would."""
        answers = {
            "get_kv_cache_spec": {
                "layer": FullAttentionSpec(block_size=16, num_kv_heads=8, head_size=64, dtype=torch.bfloat16)
            },
            "get_supported_kv_cache_layouts": ["LBNHC"],
            "determine_available_memory": _MEMORY,
            "get_supported_tasks": ("generate",),
        }
        return [answers.get(method)]

    def compile_or_warm_up_model(self) -> None:
        """Do nothing."""

    def check_health(self) -> None:
        """Be healthy."""

    def execute_model(self, scheduler_output: SchedulerOutput, non_block: bool = False) -> Any:
        """Wait for the end of the step, and return a token of each sequence whose prompt is complete."""
        output = self._step(scheduler_output)
        if output.req_ids:
            self._wait()
        if not non_block:
            return output
        future: Future[ModelRunnerOutput] = Future()
        future.set_result(output)
        return future

    def _wait(self) -> None:
        now = time.monotonic()
        since = self._ended if now - self._ended < self._step_s else now  # else it has been idle
        self._ended = since + self._step_s
        time.sleep(max(0.0, self._ended - now))

    def _step(self, scheduled: SchedulerOutput) -> ModelRunnerOutput:
        for request in scheduled.finished_req_ids:
            self._prompts.pop(request, None)
            self._logprobs.pop(request, None)
        counts = {}
        for new in scheduled.scheduled_new_reqs:
            self._prompts[new.req_id] = len(new.prompt_token_ids)
            counts[new.req_id] = (new.num_computed_tokens, 0)
            if new.sampling_params is not None and new.sampling_params.logprobs is not None:
                self._logprobs[new.req_id] = new.sampling_params.logprobs
        cached = scheduled.scheduled_cached_reqs
        counts |= dict(
            zip(cached.req_ids, zip(cached.num_computed_tokens, cached.num_output_tokens, strict=True), strict=True)
        )
        ids = list(scheduled.num_scheduled_tokens)
        tokens = []
        for request in ids:
            computed, generated = counts[request]
            complete = computed + scheduled.num_scheduled_tokens[request] >= self._prompts[request] + generated
            tokens.append([self._script[generated % len(self._script)]] if complete else [])
        places = {request: index for index, request in enumerate(ids)}
        return ModelRunnerOutput(ids, places, tokens, self._logprob_rows(tokens) if self._logprobs else None)

    def _logprob_rows(self, tokens: list[list[int]]) -> LogprobsLists:
        """Return a row for each sequence: its token, then the likeliest ones, of which it is the first."""
        width = 1 + max(self._logprobs.values())
        sampled = np.array([each[0] if each else 0 for each in tokens])
        columns = np.maximum(np.arange(width) - 1, 0)
        rows = np.broadcast_to(-0.5 - columns, (len(tokens), width)).astype(np.float32)
        return LogprobsLists(sampled[:, None] + columns, rows, np.ones(len(tokens), np.int32))
