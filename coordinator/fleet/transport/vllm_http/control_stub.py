"""Control calls to a plain vLLM server: aborts by id and metrics; all others are unsupported."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

from tokenwire.errors import Unsupported
from tokenwire.v1 import control_pb2, control_pb2_grpc

Abort = Callable[[frozenset[str] | None], int]
FetchText = Callable[[str, float], Awaitable[str]]


class _VllmHttpControl:
    """The calls of the stub."""

    def __init__(self, address: str, abort: Abort, fetch_text: FetchText) -> None:
        self._address = address
        self._abort = abort
        self._fetch_text = fetch_text

    async def Abort(self, request: control_pb2.AbortRequest, timeout: float) -> control_pb2.AbortResponse:
        """Abort requests of this coordinator."""
        ids = None if request.all else frozenset(request.request_ids)
        return control_pb2.AbortResponse(aborted_slots=self._abort(ids))

    async def GetMetrics(
        self, request: control_pb2.GetMetricsRequest, timeout: float
    ) -> control_pb2.GetMetricsResponse:
        """Return the server's metrics."""
        return control_pb2.GetMetricsResponse(text=await self._fetch_text("/metrics", timeout))

    def __getattr__(self, name: str) -> Any:
        raise Unsupported(f"{self._address} is a plain vLLM server, which does not support {name}.")


def vllm_http_control(address: str, abort: Abort, fetch_text: FetchText) -> control_pb2_grpc.ControlStub:
    """Return a control stub for a plain vLLM server.

    `abort` aborts requests by id, None: all, and returns the number of sequences; `fetch_text` gets a path as text.
    """
    return cast(control_pb2_grpc.ControlStub, _VllmHttpControl(address, abort, fetch_text))
