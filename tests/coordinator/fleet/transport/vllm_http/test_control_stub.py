"""Control calls to a plain vLLM server: aborts and metrics, and no others."""

import pytest

from tokenwire.coordinator.fleet.transport.vllm_http.control_stub import vllm_http_control
from tokenwire.errors import Unsupported
from tokenwire.v1 import control_pb2


async def test_aborts_and_metrics_are_passed_on() -> None:
    """An abort of all has no ids."""
    aborted: list[frozenset[str] | None] = []

    def abort(request_ids: frozenset[str] | None) -> int:
        aborted.append(request_ids)
        return 3

    async def text(path: str, timeout_s: float) -> str:
        return f"{path} within {timeout_s} s"

    control = vllm_http_control("http://one:8000", abort, text)
    some = await control.Abort(control_pb2.AbortRequest(request_ids=["a", "b"]), timeout=1)
    await control.Abort(control_pb2.AbortRequest(all=True), timeout=1)
    metrics = await control.GetMetrics(control_pb2.GetMetricsRequest(), timeout=2.0)

    assert (some.aborted_slots, aborted) == (3, [frozenset({"a", "b"}), None])
    assert metrics.text == "/metrics within 2.0 s"


async def test_other_calls_are_unsupported_by_name() -> None:
    """With the server's address."""
    control = vllm_http_control("http://one:8000", lambda _: 0, None)  # type: ignore[arg-type]
    with pytest.raises(Unsupported, match="http://one:8000 is a plain vLLM server, which does not support LoadLora"):
        await control.LoadLora(control_pb2.LoadLoraRequest())
