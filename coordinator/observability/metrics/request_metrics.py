"""Metrics of requests, updated once at the end of each."""

from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from tokenwire.coordinator.fleet.session_stats import TOKEN_GAP_BOUNDS_S
from tokenwire.coordinator.observability.record import RequestRecord

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


_DIVERGENCE = (
    "Requests of sessions, by why their prompts could not use what was cached of the last one: none (they could), "
    "edited, branch, compacted, template, salt, model, weights, other_worker or evicted."
)


class RequestMetrics:
    """A listener that counts requests; docs/reference/metrics.md describes each metric."""

    def __init__(self, registry: CollectorRegistry, in_flight: Callable[[], float] = lambda: 0) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"tokenwire_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...] = _SECONDS) -> Histogram:
            return Histogram(f"tokenwire_{name}_seconds", text, ("model",), registry=registry, buckets=buckets)

        labels = ("route", "model", "code", "outcome")
        self._by_model: dict[str, _ModelCounts] = {}
        self._children: dict[tuple[Counter, tuple[str, ...]], Counter] = {}
        self._requests = counter(
            "requests",
            "Finished HTTP requests. The route is a template, or none for unknown paths and missing keys; the model is "
            "that of an adapter's base, and empty if none was reached.",
            *labels,
        )
        gauge = Gauge("tokenwire_requests_in_flight", "HTTP requests in flight.", registry=registry)
        gauge.set_function(in_flight)
        self._duration = histogram("request_duration", "Time from a request to the end of its response.")
        self._first_token = histogram("time_to_first_token", "Time from a request to its first token.")
        self._per_token = histogram(
            "time_per_output_token", "Mean time per output token of a request after the first.", TOKEN_GAP_BOUNDS_S
        )
        self._queue = histogram("queue_time", "Time from the prepared prompt to its placement on a worker.")
        self._prompt = counter("prompt_tokens", "Prompt tokens of requests that were placed on a worker.", "model")
        self._cached = counter("prompt_tokens_cached", "Prompt tokens found in a worker's prefix cache.", "model")
        self._reused = counter("prompt_tokens_reused", "Prompt tokens reused from the history of chats.", "model")
        self._completion = counter("completion_tokens", "Tokens sent to clients.", "model")
        self._divergence = counter("prefix_divergence", _DIVERGENCE, "cause")
        self._finished = counter(
            "sequences_finished",
            "Placed sequences that ended, by finish reason (stop, stop_string, length, repetition, abort), or by "
            "the outcome of a request that ended before them.",
            "model",
            "reason",
        )

    def on_end(self, record: RequestRecord) -> None:
        """Count a finished request."""
        self._child(self._requests, record.route, record.model, str(record.status), record.outcome).inc()
        if record.placed_at is not None:
            self._count_generation(record)

    def _count_generation(self, record: RequestRecord) -> None:
        model = record.model
        counts = self._by_model.get(model)
        if counts is None:
            counts = self._by_model[model] = self._of(model)
        counts.add(record)
        if record.divergence is not None:
            self._child(self._divergence, record.divergence.cause).inc()
        for finish in record.finishes:
            reason = "stop_string" if isinstance(finish.stop_reason, str) and finish.reason == "stop" else finish.reason
            self._child(self._finished, model, reason).inc()
        unfinished = record.choices - len(record.finishes)
        if unfinished:
            self._child(self._finished, model, record.outcome).inc(unfinished)

    def _child(self, counter: Counter, *labels: str) -> Counter:
        """Return the counter of these labels, which takes longer to find by them than to add to."""
        child = self._children.get((counter, labels))
        if child is None:
            child = self._children[counter, labels] = counter.labels(*labels)
        return child

    def _of(self, model: str) -> "_ModelCounts":
        return _ModelCounts(
            self._duration.labels(model),
            self._first_token.labels(model),
            self._per_token.labels(model),
            self._queue.labels(model),
            self._prompt.labels(model),
            self._cached.labels(model),
            self._reused.labels(model),
            self._completion.labels(model),
        )


@dataclass(frozen=True, slots=True)
class _ModelCounts:
    """The metrics of one model, which take longer to find by its label than to add to."""

    duration: Histogram
    first_token: Histogram
    per_token: Histogram
    queue: Histogram
    prompt: Counter
    cached: Counter
    reused: Counter
    completion: Counter

    def add(self, record: RequestRecord) -> None:
        """Count a request that was placed on a worker."""
        first_token_s, per_token_s, queue_s = record.first_token_s, record.per_token_s, record.queue_s
        self.duration.observe(record.duration_s)
        if first_token_s is not None:
            self.first_token.observe(first_token_s)
        if per_token_s is not None:
            self.per_token.observe(per_token_s)
        if queue_s is not None:
            self.queue.observe(queue_s)
        self.prompt.inc(record.prompt_tokens)
        if record.cached_tokens:
            self.cached.inc(record.cached_tokens)
        if record.reused_tokens:
            self.reused.inc(record.reused_tokens)
        self.completion.inc(record.completion_tokens)
