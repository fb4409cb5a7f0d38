"""A worker's Prometheus metrics."""

from pathlib import Path

import aiohttp
import grpc

from tests.workers import running_worker, unix_address
from tokenwire.v1 import control_pb2, control_pb2_grpc
from tokenwire.worker.services.metrics import MetricsServer

_NAMES = (
    'vllm:num_requests_running{engine="0",model_name="simulated"} 0.0',
    'vllm:num_requests_waiting{engine="0",model_name="simulated"} 0.0',
    'vllm:kv_cache_usage_perc{engine="0",model_name="simulated"} 0.0',
    'vllm:prompt_tokens_total{engine="0",model_name="simulated"} 0.0',
    'vllm:generation_tokens_total{engine="0",model_name="simulated"} 0.0',
    "tokenwire_worker_sessions 0.0",
)


async def test_metrics_are_returned_by_a_control_call(tmp_path: Path) -> None:
    """Both the engine's under vLLM's names and the worker's own."""
    address = unix_address(tmp_path)
    async with running_worker(address), grpc.aio.insecure_channel(address) as channel:
        stub = control_pb2_grpc.ControlStub(channel)
        response = await stub.GetMetrics(control_pb2.GetMetricsRequest(), timeout=10)
    lines = response.text.splitlines()
    assert [name for name in _NAMES if name not in lines] == []


async def test_metrics_are_served_over_http() -> None:
    """With the content type that Prometheus expects; the port serves nothing else."""

    async def text() -> bytes:
        return b"x 1\n"

    port = MetricsServer("127.0.0.1:0", text)
    await port.startup()
    try:
        async with aiohttp.ClientSession(f"http://{port.address}") as http:
            async with http.get("/metrics") as response:
                assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
                assert await response.read() == b"x 1\n"
            async with http.get("/") as response:
                assert response.status == 404
    finally:
        await port.stop()
