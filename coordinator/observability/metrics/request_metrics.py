"""Metrics of requests, updated once at the end of each."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tokenwire.coordinator.fleet.session_stats import TOKEN_GAP_BOUNDS_S, buckets
from tokenwire.coordinator.observability.record import RequestRecord

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_REQUESTS = (
    "Finished HTTP requests. The route is a template, or none for unknown paths and missing keys; the model is "
    "that of an adapter's base, and empty if none was reached."
)
_DIVERGENCE = (
    "Requests of sessions, by why their prompts could not use what was cached of the last one: none (they could), "
    "edited, branch, compacted, template, salt, model, weights, other_worker or evicted."
)
_FINISHED = (
    "Placed sequences that ended, by finish reason (stop, stop_string, length, repetition, abort), or by "
    "the outcome of a request that ended before them."
)
_TIMES = {
    "request_duration": "Time from a request to the end of its response.",
    "time_to_first_token": "Time from a request to its first token.",
    "time_per_output_token": "Mean time per output token of a request after the first.",
    "queue_time": "Time from the prepared prompt to its placement on a worker.",
}
_TOKENS = {
    "prompt_tokens": "Prompt tokens of requests that were placed on a worker.",
    "prompt_tokens_cached": "Prompt tokens found in a worker's prefix cache.",
    "prompt_tokens_reused": "Prompt tokens reused from the history of chats.",
    "completion_tokens": "Tokens sent to clients.",
}


class RequestMetrics(Collector):
    """A listener that counts requests; docs/reference/metrics.md describes each metric.

    It adds numbers, and families are made of them when they are asked for.
    """

    def __init__(self, registry: CollectorRegistry, in_flight: Callable[[], float] = lambda: 0) -> None:
        self._requests: dict[tuple[str, ...], int] = defaultdict(int)
        self._divergence: dict[tuple[str, ...], int] = defaultdict(int)
        self._finished: dict[tuple[str, ...], int] = defaultdict(int)
        self._by_model: dict[str, _ModelCounts] = defaultdict(_ModelCounts)
        self._in_flight = in_flight
        registry.register(self)

    def on_end(self, record: RequestRecord) -> None:
        """Count a finished request."""
        self._requests[record.route, record.model, str(record.status), record.outcome] += 1
        if record.placed_at is not None:
            self._count_generation(record)

    def _count_generation(self, record: RequestRecord) -> None:
        model = record.model
        self._by_model[model].add(record)
        if record.divergence is not None:
            self._divergence[(record.divergence.cause,)] += 1
        for finish in record.finishes:
            reason = "stop_string" if isinstance(finish.stop_reason, str) and finish.reason == "stop" else finish.reason
            self._finished[model, reason] += 1
        unfinished = record.choices - len(record.finishes)
        if unfinished:
            self._finished[model, record.outcome] += unfinished

    def collect(self) -> Iterator[Metric]:
        """Return all families."""
        yield _counter("requests", _REQUESTS, ("route", "model", "code", "outcome"), self._requests)
        yield GaugeMetricFamily("tokenwire_requests_in_flight", "HTTP requests in flight.", self._in_flight())
        for name, text in _TIMES.items():
            family = HistogramMetricFamily(f"tokenwire_{name}_seconds", text, labels=("model",))
            for model, counts in self._by_model.items():
                times = counts.times[name]
                family.add_metric((model,), buckets(times.counts, times.bounds), times.sum_s)
            yield family
        for name, text in _TOKENS.items():
            by_model = self._by_model.items()
            yield _counter(name, text, ("model",), {(model,): counts.tokens[name] for model, counts in by_model})
        yield _counter("prefix_divergence", _DIVERGENCE, ("cause",), self._divergence)
        yield _counter("sequences_finished", _FINISHED, ("model", "reason"), self._finished)


def _counter(name: str, text: str, labels: Sequence[str], counts: Mapping[tuple[str, ...], int]) -> Metric:
    family = CounterMetricFamily(f"tokenwire_{name}", text, labels=labels)
    for key, count in counts.items():
        family.add_metric(key, count)
    return family


class _Times:
    """A histogram of times."""

    __slots__ = ("bounds", "counts", "sum_s")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float | None) -> None:
        """Count a time, if it is known."""
        if seconds is not None:
            self.counts[bisect_left(self.bounds, seconds)] += 1
            self.sum_s += seconds


def _all_times() -> dict[str, _Times]:
    return {name: _Times(TOKEN_GAP_BOUNDS_S if name == "time_per_output_token" else _SECONDS) for name in _TIMES}


@dataclass(slots=True)
class _ModelCounts:
    """What is counted of one model, by the names of metrics."""

    times: dict[str, _Times] = field(default_factory=_all_times)
    tokens: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_TOKENS, 0))

    def add(self, record: RequestRecord) -> None:
        """Count a request that was placed on a worker."""
        times, tokens = self.times, self.tokens
        times["request_duration"].add(record.duration_s)
        times["time_to_first_token"].add(record.first_token_s)
        times["time_per_output_token"].add(record.per_token_s)
        times["queue_time"].add(record.queue_s)
        tokens["prompt_tokens"] += record.prompt_tokens
        tokens["prompt_tokens_cached"] += record.cached_tokens
        tokens["prompt_tokens_reused"] += record.reused_tokens
        tokens["completion_tokens"] += record.completion_tokens
