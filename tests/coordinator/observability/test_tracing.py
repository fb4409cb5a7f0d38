"""Spans, as received by an OpenTelemetry collector."""

import asyncio
from collections.abc import AsyncIterator

import pytest

pytest.importorskip("opentelemetry.exporter.otlp")

from tests.collector import Collector, running_collector, span_attributes
from tokenwire.coordinator.observability.record import RequestRecord
from tokenwire.coordinator.observability.tracing import Tracing, otlp_exporter
from tokenwire.coordinator.types import Finish

_TRACE, _CLIENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    """A collector on a port of its own."""
    async with running_collector() as running:
        yield running


async def _trace(collector: Collector, record: RequestRecord) -> str:
    """Observe one request; return the context propagated to its worker."""
    tracing = Tracing(otlp_exporter(collector.endpoint))
    tracing.on_start(record)
    parent = record.trace_headers.get("traceparent", "")
    tracing.on_end(record)
    await asyncio.to_thread(tracing.close)
    return parent


async def test_a_request_is_a_span_with_queue_and_generation_as_children(collector: Collector) -> None:
    """It belongs to its client's trace, and its worker's spans belong to it."""
    record = RequestRecord(
        "POST",
        began_at=100.0,
        ended_at=104.0,
        route="/v1/chat/completions",
        status=200,
        trace_headers={"traceparent": f"00-{_TRACE}-{_CLIENT}-01"},
        request_id="chatcmpl-1",
        model="digits",
        workers=["a:1"],
        prompt_tokens=7,
        completion_tokens=3,
        submitted_at=100.5,
        placed_at=101.0,
        first_token_at=102.0,
        last_token_at=103.5,
        finishes=[Finish("length")],
        prompt="a secret",
    )
    parent = await _trace(collector, record)
    assert collector.services["queue"] == "tokenwire-coordinator"
    server, queue, chat = (collector.spans[name] for name in ("POST /v1/chat/completions", "queue", "chat digits"))
    assert (server.trace_id.hex(), server.parent_span_id.hex()) == (_TRACE, _CLIENT)
    assert parent == f"00-{_TRACE}-{server.span_id.hex()}-01"
    assert queue.parent_span_id == chat.parent_span_id == server.span_id
    lengths = [(span.end_time_unix_nano - span.start_time_unix_nano) / 1e9 for span in (server, queue, chat)]
    assert lengths == pytest.approx([4.0, 0.5, 2.5], abs=0.05)
    attributes = span_attributes(chat)
    assert attributes["gen_ai.usage.input_tokens"] == 7
    assert attributes["gen_ai.usage.output_tokens"] == 3
    assert attributes["gen_ai.latency.time_to_first_token"] == 2.0
    assert attributes["server.address"] == "a:1"
    assert b"secret" not in b"".join(span.SerializeToString() for span in (server, queue, chat))


async def test_reads_have_no_span(collector: Collector) -> None:
    """Probes are not traced; a rejected request is, without children."""
    assert await _trace(collector, RequestRecord("GET", ended_at=1.0)) == ""
    assert collector.spans == {}
    await _trace(collector, RequestRecord("POST", began_at=0.0, ended_at=1.0, route="none", status=503))
    assert list(collector.spans) == ["POST none"]
    assert collector.spans["POST none"].status.code == 2
