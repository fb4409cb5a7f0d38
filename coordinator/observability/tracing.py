"""OpenTelemetry traces: a span for each request, with child spans for its time in the queue and its generation.

Child spans are created from the record at the end, so the request path has no cost. Loaded only if tracing is enabled.
"""

import os
import time
from collections.abc import Iterator
from typing import Any

from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Span, SpanKind, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tokenwire import __version__
from tokenwire.coordinator.observability.record import RequestRecord

_OPERATIONS = (("chat", "chat"), ("messages", "chat"), ("responses", "chat"), ("completions", "text_completion"))
_FAILURES = frozenset({"error", "unavailable", "deadline"})


class Tracing:
    """A listener that exports the spans of requests to a collector."""

    def __init__(self, exporter: SpanExporter) -> None:
        # OTEL_RESOURCE_ATTRIBUTES and OTEL_TRACES_SAMPLER are read by the provider itself.
        name = os.environ.get("OTEL_SERVICE_NAME", "tokenwire-coordinator")
        self._provider = TracerProvider(resource=Resource.create({SERVICE_NAME: name}))
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("tokenwire", __version__)
        self._context = TraceContextTextMapPropagator()
        self._spans: dict[int, Span] = {}

    def on_start(self, record: RequestRecord) -> None:
        """Start a span as a child of the client's, and propagate it to workers as their parent."""
        if record.method != "POST":
            return
        span = self._tracer.start_span(
            record.method, self._context.extract(record.trace_headers), SpanKind.SERVER, start_time=_at(record.began_at)
        )
        self._spans[id(record)] = span
        headers: dict[str, str] = {}
        self._context.inject(headers, set_span_in_context(span))
        record.trace_headers = headers

    def on_end(self, record: RequestRecord) -> None:
        """End the span, with its attributes and children."""
        span = self._spans.pop(id(record), None)
        if span is None:
            return
        if span.is_recording():
            self._describe(span, record)
        span.end(_at(record.began_at + record.duration_s))

    def close(self) -> None:
        """Export the remaining spans. Takes a while if the collector is unreachable."""
        self._provider.shutdown()

    def _describe(self, span: Span, record: RequestRecord) -> None:
        span.update_name(f"{record.method} {record.route}")
        span.set_attributes(
            {
                "http.request.method": record.method,
                "http.route": record.route,
                "http.response.status_code": record.status,
                "tokenwire.outcome": record.outcome,
                **({"tokenwire.tenant": record.tenant} if record.tenant else {}),
            }
        )
        if record.outcome in _FAILURES:
            span.set_status(StatusCode.ERROR, "" if record.error is None else record.error.message)
        if record.submitted_at is not None:
            self._add_child(
                span, "queue", SpanKind.INTERNAL, record.submitted_at, record.placed_at or record.ended_at, {}
            )
        if record.placed_at is not None:
            ended_at = record.last_token_at or record.ended_at
            name = f"{_operation(record.route)} {record.model}"
            self._add_child(span, name, SpanKind.CLIENT, record.placed_at, ended_at, dict(_generation(record)))

    def _add_child(
        self, parent: Span, name: str, kind: SpanKind, start: float, end: float | None, attributes: dict[str, Any]
    ) -> None:
        span = self._tracer.start_span(name, set_span_in_context(parent), kind, attributes, start_time=_at(start))
        span.end(_at(start if end is None else max(start, end)))


def _generation(record: RequestRecord) -> Iterator[tuple[str, Any]]:
    """Yield attributes by the semantic conventions for generative AI; latencies have vLLM's names."""
    yield "gen_ai.operation.name", _operation(record.route)
    yield "gen_ai.provider.name", "tokenwire"
    yield "gen_ai.request.model", record.model
    yield "gen_ai.response.model", record.model
    yield "gen_ai.response.id", record.request_id
    yield "gen_ai.response.finish_reasons", [finish.reason for finish in record.finishes]
    yield "gen_ai.usage.input_tokens", record.prompt_tokens
    yield "gen_ai.usage.cache_read.input_tokens", record.cached_tokens
    yield "gen_ai.usage.output_tokens", record.completion_tokens
    yield "server.address", ",".join(record.workers)
    if record.first_token_s is not None:
        yield "gen_ai.latency.time_to_first_token", record.first_token_s
    if record.queue_s is not None:
        yield "gen_ai.latency.time_in_queue", record.queue_s


def _operation(route: str) -> str:
    return next((name for part, name in _OPERATIONS if part in route), "generate_content")


def _at(moment: float) -> int:
    """Convert a time of time.monotonic to nanoseconds since the epoch."""
    return time.time_ns() - round((time.monotonic() - moment) * 1e9)


def otlp_exporter(endpoint: str) -> SpanExporter:
    """Return an exporter for a collector, with the protocol of OpenTelemetry's own variable (default grpc)."""
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc")
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

        return OTLPSpanExporter(endpoint=endpoint, insecure=not endpoint.startswith("https://"))
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as OtlpHttpExporter

    return OtlpHttpExporter(endpoint=endpoint)
