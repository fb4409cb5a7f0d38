"""One trace through real processes: client, coordinator, worker, engine."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path

import httpx
import pytest

pytest.importorskip("opentelemetry.exporter.otlp")

from tests.collector import running_collector, span_attributes
from tests.conformance.servers import running_service
from tests.processes import Service, simulated_service

TRACE, CLIENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
BODY = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}
ROUTE = "/v1/chat/completions"


@asynccontextmanager
async def in_thread(service: AbstractContextManager[Service]) -> AsyncIterator[Service]:
    """Start and stop processes while the event loop, and the collector in it, continues."""
    started = await asyncio.to_thread(service.__enter__)
    try:
        yield started
    finally:
        await asyncio.to_thread(service.__exit__, None, None, None)


async def send_chats(url: str) -> None:
    """Send a request within a trace."""
    async with httpx.AsyncClient(timeout=60) as client:
        headers = {"traceparent": f"00-{TRACE}-{CLIENT}-01"}
        assert (await client.post(url + ROUTE, json=BODY, headers=headers)).status_code == 200


async def test_a_coordinator_sends_spans(tmp_path: Path) -> None:
    """They belong to the client's trace, and have the attributes of the generation."""
    async with running_collector() as collector:
        options = ["--otlp-traces-endpoint", collector.endpoint]
        async with in_thread(simulated_service(tmp_path, coordinator_options=options)) as service:
            await send_chats(service.url)
            async with asyncio.timeout(30):
                server, chat = await collector.wait_for(f"POST {ROUTE}", "chat simulated")
    assert (server.trace_id.hex(), server.parent_span_id.hex()) == (TRACE, CLIENT)
    assert chat.parent_span_id == server.span_id
    assert span_attributes(chat)["gen_ai.usage.output_tokens"] == 3


@pytest.mark.engine
@pytest.mark.long
@pytest.mark.timeout(600)
async def test_the_engine_continues_the_trace(tmp_path: Path) -> None:
    """vLLM's own span is a child of the coordinator's."""
    async with running_collector() as collector:
        endpoint = ["--otlp-traces-endpoint", collector.endpoint]
        async with in_thread(running_service(tmp_path, endpoint, endpoint)) as service:
            await send_chats(service.url)
            async with asyncio.timeout(60):
                server, engine = await collector.wait_for(f"POST {ROUTE}", "llm_request")
    assert server.trace_id == engine.trace_id == bytes.fromhex(TRACE)
    assert engine.parent_span_id == server.span_id
