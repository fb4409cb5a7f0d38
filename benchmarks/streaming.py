"""Coordinator and worker CPU per streamed token, latency and throughput, by number of streams."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import grpc

from benchmarks.load import StreamResult, http_request, percentile, stream
from benchmarks.processes import Measured, measured, simulated_pair
from tokenwire.v1 import control_pb2, control_pb2_grpc

_WINDOW_S = 5.0
_FLEET, _FLEET_STREAMS = 24, 2000
# Never matches what the simulated engine generates, but makes every character count.
STOP_STRINGS = ["\n\nHuman:", "<|never|>", "Observation:", "###"]


@dataclass(frozen=True, slots=True)
class StreamingRow:
    """One measured point."""

    case: str
    streams: int
    step_ms: float
    coordinator_us_per_token: float
    worker_us_per_token: float
    """Beyond what the engine by itself takes."""
    tokens_per_s: float
    events_per_token: float
    ttft_p50_ms: float
    ttft_p99_ms: float
    itl_p50_ms: float
    itl_p99_ms: float
    memory_mb: float


def step_ms(streams: int) -> float:
    """Return a step time that leaves the machine half idle, so that every token is a separate chunk."""
    return max(10.0, streams * 0.08)


def _warm_up_s(streams: int) -> float:
    """Return the time until all streams run, on a slow machine."""
    return max(2.0, streams / 125)


def measure(case: str, streams: int, body: dict[str, Any], *coordinator_options: str) -> StreamingRow:
    """Measure a coordinator in front of one simulated worker."""
    step = step_ms(streams)
    options = ("--sim-step-ms", str(step), "--sim-prefill-rate", "0", "--sim-max-num-seqs", str(streams))
    with simulated_pair(*options, coordinator_options=coordinator_options) as (worker, coordinator, url, address):
        return asyncio.run(_measure(case, streams, step, body, worker, coordinator, url, [address]))


def measure_fleet(case: str, streams: int, workers: int, step: float) -> StreamingRow:
    """Measure a coordinator in front of this number of simulated workers, which share a process."""
    arguments = [str(workers), str(step), str(streams)]
    with measured(arguments, module="benchmarks.many_workers") as fleet:
        addresses = fleet.wait_for(r"ready: (.+)")[1].split()
        options = [option for address in addresses for option in ("--worker", address)]
        with measured(["coordinator", "--port", "0", *options]) as coordinator:
            url = coordinator.wait_for(r"is ready: (http://\S+)")[1]
            return asyncio.run(_measure(case, streams, step, {}, fleet, coordinator, url, addresses, windows=3))


async def _measure(
    case: str,
    streams: int,
    step: float,
    body: dict[str, Any],
    worker: Measured,
    coordinator: Measured,
    url: str,
    addresses: Sequence[str],
    windows: int = 1,
) -> StreamingRow:
    tokens = int((_warm_up_s(streams) + windows * (_WINDOW_S + 1.0) + 2.0) * 1000 / step)
    request = http_request(url, "/v1/chat/completions", _chat_body(tokens, body))
    running = [asyncio.create_task(stream(url, request)) for _ in range(streams)]
    await asyncio.sleep(_warm_up_s(streams))
    measurements = [await _window(worker, coordinator, addresses) for _ in range(windows)]
    memory = coordinator.memory_mb()
    results = await asyncio.gather(*running)
    coordinator_s, worker_s, generated = sorted(measurements, key=lambda each: each[0] / each[2])[windows // 2]
    return _row(
        case, streams, step, 1e6 * coordinator_s / generated, 1e6 * worker_s / generated, generated, memory, results
    )


async def _window(worker: Measured, coordinator: Measured, addresses: Sequence[str]) -> tuple[float, float, int]:
    """Return CPU seconds of coordinator and worker, and tokens, in one window."""
    before = coordinator.cpu_seconds(), worker.cpu_seconds(), await _generated(addresses)
    await asyncio.sleep(_WINDOW_S)
    after = coordinator.cpu_seconds(), worker.cpu_seconds(), await _generated(addresses)
    return after[0] - before[0], after[1] - before[1], after[2] - before[2]


def measure_floor(kind: str, case: str, streams: int, *options: str) -> StreamingRow:
    """Measure a server that only writes; see benchmarks.floor."""
    step = step_ms(streams)
    with measured([kind, str(step), *options], module="benchmarks.floor") as server:
        url = server.wait_for(r"ready: (http://\S+)")[1]
        return asyncio.run(_measure_floor(case, streams, step, server, url))


async def _measure_floor(case: str, streams: int, step: float, server: Measured, url: str) -> StreamingRow:
    tokens = int((_warm_up_s(streams) + _WINDOW_S + 3.0) * 1000 / step)
    request = http_request(url, "/v1/chat/completions", _chat_body(tokens, {}))
    running = [asyncio.create_task(stream(url, request)) for _ in range(streams)]
    await asyncio.sleep(_warm_up_s(streams))
    before = server.cpu_seconds()
    await asyncio.sleep(_WINDOW_S)
    used = server.cpu_seconds() - before
    generated = streams * _WINDOW_S * 1000 / step
    memory = server.memory_mb()
    results = await asyncio.gather(*running)
    return _row(case, streams, step, 1e6 * used / generated, 0.0, generated, memory, results)


def engine_alone_us(streams: int) -> float:
    """Return CPU per token of the simulated engine alone."""
    arguments = [str(streams), str(step_ms(streams)), str(_WINDOW_S)]
    with measured(arguments, module="benchmarks.engine_alone") as engine:
        return float(engine.wait_for(r"ready: (\S+)")[1])


def _chat_body(tokens: int, extra: dict[str, Any]) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": "Tell me a long story."}],
        "max_tokens": tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        **extra,
    }


async def _generated(addresses: Sequence[str]) -> int:
    async def send_request(address: str) -> int:
        async with grpc.aio.insecure_channel(address) as channel:
            info = await control_pb2_grpc.ControlStub(channel).GetServerInfo(control_pb2.GetServerInfoRequest())
        return int(info.generated_tokens)

    return sum(await asyncio.gather(*map(send_request, addresses)))


def _row(
    case: str,
    streams: int,
    step: float,
    coordinator_us: float,
    worker_us: float,
    generated: float,
    memory: float,
    results: Sequence[StreamResult],
) -> StreamingRow:
    incomplete = [result for result in results if not result.complete]
    if incomplete:
        raise RuntimeError(f"{case}, {streams} streams: {len(incomplete)} did not complete: {incomplete[0]}")
    first = [1000 * (result.time_to_first_token or 0.0) for result in results]
    gaps = [1000 * gap for result in results for gap in result.gaps]
    return StreamingRow(
        case=case,
        streams=streams,
        step_ms=step,
        coordinator_us_per_token=coordinator_us,
        worker_us_per_token=worker_us,
        tokens_per_s=generated / _WINDOW_S,
        events_per_token=sum(result.events for result in results) / sum(result.completion_tokens for result in results),
        ttft_p50_ms=percentile(first, 50),
        ttft_p99_ms=percentile(first, 99),
        itl_p50_ms=percentile(gaps, 50),
        itl_p99_ms=percentile(gaps, 99),
        memory_mb=memory,
    )


def run_fleets() -> Iterator[dict[str, Any]]:
    """Measure the same rate of tokens from one worker, in large and in small frames, and from many."""
    step, share = step_ms(_FLEET_STREAMS), _FLEET_STREAMS // _FLEET
    for _ in range(2):
        yield asdict(measure_floor("writes", "bare writes, at once", _FLEET_STREAMS))
        yield asdict(measure_floor("writes", f"bare writes, {_FLEET} times a step", _FLEET_STREAMS, str(_FLEET)))
        yield asdict(measure_fleet("1 worker", _FLEET_STREAMS, 1, step))
        yield asdict(measure_fleet("1 worker, as many frames as many", share, 1, step / _FLEET))
        yield asdict(measure_fleet(f"{_FLEET} workers", _FLEET_STREAMS, _FLEET, step))


def run(streams: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Measure every case for every number of streams."""
    for count in streams:
        alone = engine_alone_us(count)
        for case, body in (("plain", {}), ("4 stop strings", {"stop": STOP_STRINGS})):
            row = measure(case, count, body)
            yield asdict(row) | {"worker_us_per_token": row.worker_us_per_token - alone}
        yield asdict(measure_floor("writes", "bare writes", count))
        yield asdict(measure_floor("uvicorn", "bare uvicorn", count))
