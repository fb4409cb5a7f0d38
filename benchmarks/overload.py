"""Ten times the load that workers can serve: goodput, rejections, and recovery."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.load import StreamResult, http_request, percentile, stream
from benchmarks.processes import Measured, simulated_pair

_MAX_NUM_SEQS = 32
_STEP_MS = 20.0
_TOKENS = 50
"""Of a reply, which so takes a second."""
_SATURATE_S = 6.0
_SETTLE_S = 2.0
"""The beginning of a phase, which is not counted."""
_PROBE_EVERY_S = 0.1
_NORMAL_FACTOR = 2.0
_GIVE_UP_S = 30.0


@dataclass(frozen=True, slots=True)
class Overload:
    """The results of the load."""

    seconds: float
    load: float
    """Requests a second, as a multiple of what the workers can serve."""
    requests: int
    capacity_tokens_per_s: float
    """Of replies that ended, when as many clients as there is capacity for send one request after the other."""
    goodput: float
    """Tokens of full replies during the overload, as a share of that."""
    statuses: dict[int, int]
    rejected_without_retry_after: int
    incomplete: int
    normal_ttft_ms: float
    """Of a single client."""
    ttft_p50_ms: float
    ttft_p99_ms: float
    """Of requests that were served."""
    recovered_after_s: float
    """From the end of the load to the first request that is served as quickly as a single client's."""
    coordinator_cpu: float
    """Share of a core during the overload."""
    memory_before_mb: float
    memory_after_mb: float


def run(seconds: float = 60.0, load: float = 10.0, *coordinator_options: str) -> dict[str, Any]:
    """Measure one coordinator in front of one simulated worker."""
    options = ("--sim-step-ms", str(_STEP_MS), "--sim-max-num-seqs", str(_MAX_NUM_SEQS))
    with simulated_pair(*options, coordinator_options=coordinator_options) as (_, coordinator, url, _):
        return asdict(asyncio.run(_measure(coordinator, url, seconds, load)))


async def _measure(coordinator: Measured, url: str, seconds: float, load: float) -> Overload:
    request = _request(url)
    alone = [await stream(url, request) for _ in range(5)]
    normal_s = max(_ttft(result) for result in alone)
    capacity = await _saturate(url, request)
    before, busy_s = coordinator.memory_mb(), coordinator.cpu_seconds()
    started = time.monotonic()
    requests = await _send(url, request, seconds, load * capacity / _TOKENS)
    ended, busy_s = time.monotonic(), coordinator.cpu_seconds() - busy_s
    recovered = await _recover(url, request, _NORMAL_FACTOR * normal_s)
    results = await asyncio.gather(*requests)
    served = [result for result in results if result.status == 200]
    rejected = [result for result in results if result.status != 200]
    return Overload(
        seconds=seconds,
        load=load,
        requests=len(results),
        capacity_tokens_per_s=capacity,
        goodput=_tokens_per_s(results, started + _SETTLE_S, ended) / capacity,
        statuses=dict(Counter(result.status for result in results)),
        rejected_without_retry_after=sum(result.retry_after is None for result in rejected),
        incomplete=sum(not result.complete for result in served),
        normal_ttft_ms=1000 * normal_s,
        ttft_p50_ms=1000 * percentile([_ttft(result) for result in served], 50),
        ttft_p99_ms=1000 * percentile([_ttft(result) for result in served], 99),
        recovered_after_s=recovered,
        coordinator_cpu=busy_s / (ended - started),
        memory_before_mb=before,
        memory_after_mb=coordinator.memory_mb(),
    )


async def _saturate(url: str, request: bytes) -> float:
    """Return the tokens per second with twice as many clients as run at a time."""
    results: list[StreamResult] = []
    started = time.monotonic()

    async def client() -> None:
        while time.monotonic() < started + _SETTLE_S + _SATURATE_S:
            results.append(await stream(url, request))

    await asyncio.gather(*(client() for _ in range(2 * _MAX_NUM_SEQS)))
    return _tokens_per_s(results, started + _SETTLE_S, started + _SETTLE_S + _SATURATE_S)


async def _send(url: str, request: bytes, seconds: float, per_s: float) -> "list[asyncio.Task[StreamResult]]":
    """Send this number of requests per second, whatever their results."""
    started = time.monotonic()
    sent: list[asyncio.Task[StreamResult]] = []
    while (elapsed := time.monotonic() - started) < seconds:
        sent += [asyncio.create_task(stream(url, request)) for _ in range(int(elapsed * per_s) - len(sent))]
        await asyncio.sleep(0.005)
    return sent


async def _recover(url: str, request: bytes, normal_s: float) -> float:
    """Return when the first request was sent whose first token came within a time."""
    started = time.monotonic()
    probes: list[asyncio.Task[StreamResult]] = []
    while time.monotonic() - started < _GIVE_UP_S:
        probes.append(asyncio.create_task(stream(url, request)))
        await asyncio.sleep(_PROBE_EVERY_S)
        quick = [probe.result() for probe in probes if probe.done() and _is_quick(probe.result(), normal_s)]
        if quick:
            await asyncio.gather(*probes)
            return quick[0].started - started
    raise RuntimeError(f"no request was served within {normal_s:.3f} s for {_GIVE_UP_S:g} s after the load")


def _is_quick(result: StreamResult, normal_s: float) -> bool:
    return result.status == 200 and _ttft(result) <= normal_s


def _ttft(result: StreamResult) -> float:
    return result.time_to_first_token or 0.0


def _tokens_per_s(results: Sequence[StreamResult], start: float, end: float) -> float:
    complete = [result for result in results if result.complete and start <= result.arrivals[-1] < end]
    return sum(result.completion_tokens for result in complete) / (end - start)


def _request(url: str) -> bytes:
    body = {
        "messages": [{"role": "user", "content": "Tell me a story."}],
        "max_tokens": _TOKENS,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return http_request(url, "/v1/chat/completions", body)
