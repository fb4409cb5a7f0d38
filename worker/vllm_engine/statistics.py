"""Feeds vLLM's own loggers, and so Prometheus under vLLM's names, with less work per token than vLLM.

Also feeds vLLM's own tracing, if the engine was started with --otlp-traces-endpoint.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from vllm.v1.metrics.stats import IterationStats, LoRARequestStates, RequestStateStats, SchedulerStats


@dataclass(slots=True)
class _Request:
    """A request's statistics, with the fields that vLLM's tracing reads of its RequestState, under its names."""

    stats: Any
    """vLLM's RequestStateStats."""
    external_req_id: str
    prompt_token_ids: Sequence[int]
    """Empty without tracing."""
    prompt_tokens: int
    max_tokens_param: int | None
    top_p: float | None
    temperature: float | None
    lora_name: str | None
    cached_tokens: int = 0
    prompt_embeds: None = None
    n: int = 1


class Statistics:
    """Tracks requests as vLLM's output processor does.

    With two exceptions: one inter-token latency is observed per step instead of one per token, which
    would cost more than everything else together; and a request of several sequences counts once per sequence.
    """

    def __init__(self, llm: Any) -> None:
        self._llm = llm
        self._requests: dict[str, _Request] = {}
        self._loras = LoRARequestStates(log_stats=True)

    def track(self, request: Any) -> None:
        """Start tracking an EngineCoreRequest of one sequence."""
        if self._llm.logger_manager is not None:
            params = request.sampling_params
            self._requests[request.request_id] = _Request(
                RequestStateStats(arrival_time=request.arrival_time),
                request.external_req_id,
                request.prompt_token_ids if self._is_traced else (),
                len(request.prompt_token_ids),
                None if params is None else params.max_tokens,  # an input to pool has none
                None if params is None else params.top_p,
                None if params is None else params.temperature,
                None if request.lora_request is None else request.lora_request.lora_name,
            )

    def untrack(self, request_id: str) -> None:
        """Stop tracking a request; does nothing if it has ended."""
        request = self._requests.pop(request_id, None)
        if request is not None:
            self._loras.request_finished(request_id, request.lora_name)

    def record(self, outputs: Any) -> None:
        """Record a message of the engine core, before any of its requests is untracked."""
        manager = self._llm.logger_manager
        if manager is None:
            return
        iteration = self._iteration(outputs) if outputs.outputs else None
        self._loras.update_scheduler_stats(outputs.scheduler_stats)
        manager.record(outputs.scheduler_stats, iteration, engine_idx=outputs.engine_index)

    def record_idle(self, engines: Iterable[int]) -> None:
        """Record that these engines are idle."""
        if self._llm.logger_manager is not None:
            for index in engines:
                self._llm.logger_manager.record(SchedulerStats(), None, engine_idx=index)

    def _iteration(self, outputs: Any) -> Any:
        iteration, timestamp, requests = IterationStats(), outputs.timestamp, self._requests
        tokens, gap = 0, None
        for output in outputs.outputs:
            request = requests.get(output.request_id)
            if request is None:
                continue
            stats = request.stats
            if not stats.first_token_ts:
                self._begin(iteration, output, timestamp, request)
            else:
                count = len(output.new_token_ids)
                tokens += count
                stats.num_generation_tokens += count
                gap = timestamp - stats.last_token_ts
                stats.last_token_ts = timestamp
                if output.events is not None:
                    iteration.update_from_events(
                        output.request_id, output.events, False, stats, self._loras, request.lora_name
                    )
            if output.finish_reason is not None:
                self._finish(iteration, output, request)
        iteration.num_generation_tokens += tokens
        if gap is not None:
            iteration.inter_token_latencies_iter.append(gap)
        return iteration

    def _begin(self, iteration: Any, output: Any, timestamp: float, request: _Request) -> None:
        if output.prefill_stats is not None:
            request.cached_tokens = output.prefill_stats.num_cached_tokens
        iteration.update_from_output(output, timestamp, True, request.stats, self._loras, request.lora_name)

    def _finish(self, iteration: Any, output: Any, request: _Request) -> None:
        iteration.update_from_finished_request(
            finish_reason=output.finish_reason,
            request_id=output.request_id,
            num_prompt_tokens=request.prompt_tokens,
            max_tokens_param=request.max_tokens_param,
            req_stats=request.stats,
            num_cached_tokens=request.cached_tokens,
        )
        iteration.max_num_generation_tokens_iter.append(request.stats.num_generation_tokens)
        iteration.n_params_iter.append(1)
        if self._is_traced:
            self._llm.output_processor.do_tracing(output, request, iteration)

    @property
    def _is_traced(self) -> bool:
        return bool(self._llm.output_processor.tracing_enabled)
