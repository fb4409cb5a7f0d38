"""An OpenTelemetry collector for tests: takes spans by gRPC and keeps them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """What it got."""

    def __init__(self) -> None:
        self.endpoint = ""
        self.services: dict[str, str] = {}
        """By the names of their spans."""
        self.spans: dict[str, Any] = {}
        """The last of each name."""
        self._came = asyncio.Event()

    async def Export(self, request: Any, context: Any) -> Any:
        """Take spans."""
        for resource in request.resource_spans:
            service = span_attributes(resource.resource)["service.name"]
            for scope in resource.scope_spans:
                self.spans.update((span.name, span) for span in scope.spans)
                self.services.update((span.name, service) for span in scope.spans)
        self._came.set()
        return trace_service_pb2.ExportTraceServiceResponse()

    async def wait_for(self, *names: str) -> list[Any]:
        """Wait until spans of these names are there."""
        while not self.spans.keys() >= {*names}:
            self._came.clear()
            await self._came.wait()
        return [self.spans[name] for name in names]


@asynccontextmanager
async def running_collector() -> AsyncIterator[Collector]:
    """Run a collector on a port of its own."""
    servicer, server = Collector(), grpc.aio.server()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]
    servicer.endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    yield servicer
    await server.stop(grace=None)


def span_attributes(holder: Any) -> dict[str, Any]:
    """Return the attributes of a span or a resource."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in holder.attributes}
