"""Requests are counted for vLLM's own loggers, with less work per token."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.lazily import Lazily
from tokenwire.v1 import inference_pb2 as pb

statistics = Lazily("tokenwire.worker.vllm_engine.statistics")
sampling = Lazily("tokenwire.worker.vllm_engine.sampling")
stats = Lazily("vllm.v1.metrics.stats")
engine_types = Lazily("vllm.v1.engine")

pytestmark = pytest.mark.engine


class RecordingLogger:
    """Stands for vLLM's loggers and its tracing."""

    def __init__(self, tracing: bool = False) -> None:
        self.records: list[tuple[Any, Any, int]] = []
        self.traced: list[tuple[str, list[int]]] = []
        self.tracing_enabled = tracing

    def record(self, scheduler: Any, iteration: Any, engine_idx: int) -> None:
        """Record a message's statistics."""
        self.records.append((scheduler, iteration, engine_idx))

    def do_tracing(self, output: Any, request: Any, iteration: Any) -> None:
        """Record a trace."""
        self.traced.append((request.external_req_id, list(request.prompt_token_ids)))


def engine_request(name: str) -> Any:
    """Return a request of one sequence."""
    return SimpleNamespace(
        request_id=name,
        external_req_id=f"client-{name}",
        prompt_token_ids=[1, 2, 3, 4],
        arrival_time=1.0,
        sampling_params=sampling.to_vllm(pb.SamplingParams(max_tokens=9), 1),
        lora_request=None,
    )


def message(at: float, *outputs: tuple[str, int, Any], cached: int | None = None) -> Any:
    """Return a message of the core: (request, new tokens, finish reason) each."""
    made = []
    for name, tokens, reason in outputs:
        output = engine_types.EngineCoreOutput(name, [5] * tokens, finish_reason=reason)
        if cached is not None:
            output.prefill_stats = stats.PrefillStats(num_prompt_tokens=4, num_cached_tokens=cached)
        made.append(output)
    return engine_types.EngineCoreOutputs(2, made, stats.SchedulerStats(), at)


def counting(logger: RecordingLogger | None, *names: str) -> Any:
    """Return the statistics of an engine with these requests under way."""
    tracer = logger or RecordingLogger()
    made = statistics.Statistics(SimpleNamespace(logger_manager=logger, output_processor=tracer))
    for name in names:
        made.track(engine_request(name))
    return made


def test_a_request_is_counted_from_its_first_token_to_its_end() -> None:
    """Tokens, times and the finish, as vLLM's output processor would."""
    logger = RecordingLogger()
    counted = counting(logger, "a")
    counted.record(message(10.0, ("a", 1, None), cached=3))
    counted.record(message(12.5, ("a", 2, engine_types.FinishReason.LENGTH)))

    (_, first, index), (_, second, _) = logger.records
    (finished,) = second.finished_requests
    assert index == 2
    assert (first.num_generation_tokens, len(first.time_to_first_tokens_iter)) == (1, 1)
    assert (second.num_generation_tokens, second.inter_token_latencies_iter) == (2, [2.5])
    assert (finished.num_prompt_tokens, finished.num_cached_tokens, finished.num_generation_tokens) == (4, 3, 3)
    assert (finished.max_tokens_param, finished.decode_time) == (9, 2.5)


def test_one_latency_is_observed_for_a_step_of_many() -> None:
    """One per token would cost more than everything else together; tokens are all counted."""
    logger = RecordingLogger()
    counted = counting(logger, "a", "b", "c")
    for at in (1.0, 1.5):
        counted.record(message(at, ("a", 1, None), ("b", 1, None), ("c", 1, None)))

    assert logger.records[1][1].inter_token_latencies_iter == [0.5]
    assert logger.records[1][1].num_generation_tokens == 3


def test_an_aborted_request_is_counted_no_more() -> None:
    """The core may still send a token of it; and when all are gone, the engines are idle."""
    logger = RecordingLogger()
    counted = counting(logger, "a")
    counted.untrack("a")
    counted.untrack("a")
    counted.record(message(1.0, ("a", 1, None)))
    counted.record_idle([0, 1])

    assert logger.records[0][1].num_generation_tokens == 0
    assert [(each.num_running_reqs, iteration, index) for each, iteration, index in logger.records[1:]] == [
        (0, None, 0),
        (0, None, 1),
    ]


def test_requests_are_traced_if_the_engine_traces() -> None:
    """With their prompts, which are not kept otherwise."""
    for tracing, expected in ((True, [("client-a", [1, 2, 3, 4])]), (False, [])):
        logger = RecordingLogger(tracing)
        counting(logger, "a").record(message(1.0, ("a", 1, engine_types.FinishReason.STOP)))
        assert logger.traced == expected


def test_without_loggers_nothing_is_counted() -> None:
    """As during the warm-up."""
    counted = counting(None, "a")
    counted.record(message(1.0, ("a", 1, None)))
    counted.record_idle([0])
    assert not counted._requests
