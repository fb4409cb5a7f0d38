"""The cost of a coordinator before the first request, and the delay of aborts."""

import json
import socket
import sys
import tempfile
import time
from typing import Any
from urllib.parse import urlsplit

import grpc
import httpx

from benchmarks.load import http_request
from benchmarks.processes import measured, simulated_pair
from tokenwire.v1 import control_pb2, control_pb2_grpc

_PARSERS = ["--tool-call-parser", "hermes", "--enable-auto-tool-choice", "--reasoning-parser", "qwen3"]
_COORDINATORS = {"no parsers": [], "parsers": _PARSERS, "parsers, all of vLLM": [*_PARSERS, "--load-whole-vllm"]}


def start_and_rest() -> dict[str, Any]:
    """Return what coordinators with and without parsers cost before the first request, with a running worker."""
    with measured(["worker", "--engine", "sim", "--listen", "127.0.0.1:0"]) as worker:
        address = worker.wait_for(r"ready: .* on (\S+)")[1]
        rows = {name: _start(address, options) for name, options in _COORDINATORS.items()}
    return {"coordinators": rows, "python": sys.version.split()[0]}


def _start(worker: str, options: list[str]) -> dict[str, float]:
    """Return seconds from exec to ready and of CPU, medians of 5 starts, and MB of resident memory at rest."""
    starts, cpu, memory = [], [], 0.0
    for _ in range(5):
        with measured(["coordinator", "--port", "0", "--worker", worker, *options]) as coordinator:
            url = coordinator.wait_for(r"listening on (http://\S+:\d+)")[1]
            _wait_healthy(url)
            starts.append(time.monotonic() - coordinator.started)
            cpu.append(coordinator.cpu_seconds())
            time.sleep(1.0)
            memory = coordinator.memory_mb()
    return {"ready_s": sorted(starts)[2], "cpu_s": sorted(cpu)[2], "rest_memory_mb": memory}


def after_stop_match() -> dict[str, Any]:
    """Return the tokens generated after the one that completed a stop string, for 50 streams."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as script:
        json.dump([ord(character) for character in "some words STOP and many more words after it "], script)
        script.flush()
        with simulated_pair("--sim-script", script.name, "--sim-step-ms", "10") as (_, _, url, address):
            body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 5000, "stop": ["STOP"]}
            surplus = [_surplus(url, address, body) for _ in range(50)]
    return {
        "requests": len(surplus),
        "surplus_tokens_max": max(surplus),
        "surplus_tokens_mean": sum(surplus) / len(surplus),
    }


def after_disconnect() -> dict[str, Any]:
    """Return milliseconds from a client's disconnect to the end of its sequence, for 50 streams."""
    with simulated_pair("--sim-step-ms", "10") as (_, _, url, address):
        body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 20_000, "stream": True}
        times = sorted(_leave(url, address, body) for _ in range(50))
    return {"requests": len(times), "aborted_after_p50_ms": times[25], "aborted_after_max_ms": times[-1]}


def _leave(url: str, address: str, body: dict[str, Any]) -> float:
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname or "", parts.port or 80)) as connection:
        connection.sendall(http_request(url, "/v1/chat/completions", body))
        connection.recv(65536)
    left = time.monotonic()
    while _info(address).open_slots:
        pass
    return 1000 * (time.monotonic() - left)


def _surplus(url: str, address: str, body: dict[str, Any]) -> int:
    before = _info(address).generated_tokens
    kept = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=30).json()["usage"]["completion_tokens"]
    while _info(address).open_slots:
        time.sleep(0.005)
    return int(_info(address).generated_tokens - before - kept)


def _info(address: str) -> control_pb2.GetServerInfoResponse:
    with grpc.insecure_channel(address) as channel:
        response: control_pb2.GetServerInfoResponse = control_pb2_grpc.ControlStub(channel).GetServerInfo(
            control_pb2.GetServerInfoRequest()
        )
    return response


def _wait_healthy(url: str) -> None:
    while True:
        try:
            if httpx.get(f"{url}/health").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.01)
