"""Control calls to a stock server: aborts by id, metrics; everything else is refused."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

from tokenwire.errors import Unsupported
from tokenwire.v1 import control_pb2, control_pb2_grpc

Abort = Callable[[frozenset[str] | None], int]
Ask = Callable[[str, float], Awaitable[str]]


class _StockControl:
    """Has every call of the stub, as far as anybody asks."""

    def __init__(self, address: str, abort: Abort, ask: Ask) -> None:
        self._address = address
        self._abort = abort
        self._ask = ask

    async def Abort(self, request: control_pb2.AbortRequest, timeout: float) -> control_pb2.AbortResponse:
        """End requests that this coordinator sent."""
        ids = None if request.all else frozenset(request.request_ids)
        return control_pb2.AbortResponse(aborted_slots=self._abort(ids))

    async def GetMetrics(
        self, request: control_pb2.GetMetricsRequest, timeout: float
    ) -> control_pb2.GetMetricsResponse:
        """Return what the server tells Prometheus."""
        return control_pb2.GetMetricsResponse(text=await self._ask("/metrics", timeout))

    def __getattr__(self, name: str) -> Any:
        raise Unsupported(f"{self._address} is a stock vLLM server, which cannot be steered ({name}).")


def stock_control(address: str, abort: Abort, ask: Ask) -> control_pb2_grpc.ControlStub:
    """Return what stands for the stub.

    `abort` ends requests by their ids, None all, and says how many sequences; `ask` gets a text of the server.
    """
    return cast(control_pb2_grpc.ControlStub, _StockControl(address, abort, ask))
