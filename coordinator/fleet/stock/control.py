"""Control calls to a stock server: aborts by id; everything else is refused."""

from collections.abc import Callable
from typing import Any, cast

from tokenwire.errors import Unsupported
from tokenwire.v1 import control_pb2, control_pb2_grpc


class _StockControl:
    """Has every call of the stub, as far as anybody asks."""

    def __init__(self, address: str, abort: Callable[[frozenset[str] | None], int]) -> None:
        self._address = address
        self._abort = abort

    async def Abort(self, request: control_pb2.AbortRequest, timeout: float) -> control_pb2.AbortResponse:
        """End requests that this coordinator sent."""
        ids = None if request.all else frozenset(request.request_ids)
        return control_pb2.AbortResponse(aborted_slots=self._abort(ids))

    def __getattr__(self, name: str) -> Any:
        raise Unsupported(f"{self._address} is a stock vLLM server, which cannot be steered ({name}).")


def stock_control(address: str, abort: Callable[[frozenset[str] | None], int]) -> control_pb2_grpc.ControlStub:
    """Return what stands for the stub; `abort` ends requests by their ids, None all, and says how many sequences."""
    return cast(control_pb2_grpc.ControlStub, _StockControl(address, abort))
