"""A coordinator with more tokens than it can stream one by one: throughput, and how soon a new request begins."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.load import http_request, percentile, stream
from benchmarks.processes import Measured, simulated_pair

_STEPS_MS = (40.0, 20.0, 10.0, 4.0, 2.0)
_STREAMS = 240
_SECONDS = 8.0
"""What the replies would take if nobody were behind."""
_WARM_UP_S = 1.5
_PROBE_EVERY_S = 0.1


def run(steps_ms: Sequence[float] = _STEPS_MS, streams: int = _STREAMS) -> Iterator[dict[str, Any]]:
    """Measure one coordinator with a worker of these step times, which offers a token of each stream a step."""
    for step_ms in steps_ms:
        options = ("--sim-step-ms", str(step_ms), "--sim-max-num-seqs", str(2 * streams), "--sim-prefill-rate", "0")
        with simulated_pair(*options) as (_, coordinator, url, _):
            yield asyncio.run(_measure(coordinator, url, step_ms, streams))


async def _measure(coordinator: Measured, url: str, step_ms: float, streams: int) -> dict[str, Any]:
    tokens = round(1000 * _SECONDS / step_ms)
    request, probe = _request(url, tokens), _request(url, 1)
    began, busy_s = time.monotonic(), coordinator.cpu_seconds()
    replies = [asyncio.create_task(stream(url, request)) for _ in range(streams)]
    await asyncio.sleep(_WARM_UP_S)
    probes = []
    while not any(reply.done() for reply in replies):
        probes.append(asyncio.create_task(stream(url, probe)))
        await asyncio.sleep(_PROBE_EVERY_S)
    results, probed = await asyncio.gather(*replies), await asyncio.gather(*probes)
    seconds, busy_s = time.monotonic() - began, coordinator.cpu_seconds() - busy_s
    if not all(result.complete for result in (*results, *probed)):
        raise RuntimeError("a stream is incomplete")
    first_s = [result.time_to_first_token or 0.0 for result in probed]
    return {
        "step_ms": step_ms,
        "offered_tokens_per_s": 1000 * streams / step_ms,
        "tokens_per_s": streams * tokens / seconds,
        "us_per_token": 1e6 * busy_s / (streams * tokens),
        "chunks_of_tokens": sum(result.events for result in results) / (streams * tokens),
        "probe_ttft_p50_ms": 1000 * percentile(first_s, 50),
        "probe_ttft_p95_ms": 1000 * percentile(first_s, 95),
    }


def _request(url: str, tokens: int) -> bytes:
    messages = [{"role": "user", "content": "Tell me a story."}]
    body = {"messages": messages, "max_tokens": tokens, "stream": True, "ignore_eos": True}
    return http_request(url, "/v1/chat/completions", body)
