"""What a decode step costs beyond the model: one engine, driven in one process in four ways.

- `nothing`: the engine core's messages are decoded and dropped, the floor for all others;
- `core driver`: what tokenwire's worker does by default, until a frame is serialized;
- `generate driver`: what it does with a vLLM whose internals it does not support;
- `generate`: AsyncLLM.generate with detokenization, as in `vllm serve`, without HTTP and JSON.

Times of steps are the engine core's own timestamps, so they include waiting of the core for its front, if there is
any. With asynchronous scheduling there should be none: then a front that is too slow is late (`lag`) instead.
"""

import os
import statistics
import time
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise, product
from typing import Any

from benchmarks.load import percentile
from gpu.gpu_samples import sampled
from gpu.kit import Kit
from gpu.parts import Parts
from gpu.step import Skipped

NAME = "overhead"
LIMIT_S = 150

_RESERVE_S = 15
_STREAMS = (1, 64, 256)
_DRY_STREAMS = (1, 4)
_TOKENS = {1: 300, 64: 400, 256: 500}
_DRY_TOKENS = 24
_LEFT_OUT = 5
"""Steps after the last stream has begun, and before the first one ends, that do not count."""
_ROUNDS = 2
_MEANS = ("step_ms", "tokens_per_s", "front_cpu_us_per_token", "front_busy_share", "lag_p50_ms")


def run(kit: Kit) -> dict[str, Any]:
    """Drive all ways in turn, twice if there is time."""
    os.environ.update(kit.environment())
    import uvloop

    results: dict[str, Any] = uvloop.run(_measure(kit))
    return results


async def _measure(kit: Kit) -> dict[str, Any]:
    deadline = time.monotonic() + (LIMIT_S if kit.on_cuda else 5 * LIMIT_S) - _RESERVE_S
    from gpu.driven_engine import DrivenEngine
    from tokenwire.process.gc_tuning import freeze_heap

    arguments = [*kit.engine_arguments(), *kit.medium.load_arguments]
    engine = DrivenEngine(str(kit.medium.folder), arguments, [kit.medium.name])
    await engine.start()
    freeze_heap()  # as both servers do
    recorder, parts, longest_s = StepRecorder(engine.llm.engine_core), Parts(kit.out), 0.0
    ways = {
        "nothing": engine.drop,
        "core driver": engine.drive_core,
        "generate driver": engine.drive_generate,
        "generate": engine.generate,
    }
    all_streams = _STREAMS if kit.on_cuda else _DRY_STREAMS
    try:
        for number, streams, way in product(range(_ROUNDS), all_streams, ways):
            with parts.part(f"{way}, {streams} streams, round {number + 1}") as found:
                started = time.monotonic()
                if deadline - started < longest_s:
                    raise Skipped(f"{deadline - started:.0f} s are left")
                with sampled(kit.out / f"gpu-{way.replace(' ', '-')}-{streams}-{number}.csv") as gpu:
                    await recorder.record(ways[way](streams, _TOKENS[streams] if kit.on_cuda else _DRY_TOKENS))
                found |= {"way": way, "streams": streams, **recorder.figures(streams), **gpu}
                longest_s = max(longest_s, time.monotonic() - started)
                if "step_ms" not in found:
                    raise RuntimeError(f"in {found['steps']} steps only did all streams decode")
    finally:
        await engine.stop()
    return {"model": kit.medium.name, "means": means(parts.results.values()), "parts": parts.results}


def means(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the means of all rounds, and how much of a step is beyond those of an engine whose output is dropped."""
    measured = [row for row in rows if "step_ms" in row]
    found: list[dict[str, Any]] = []
    for streams, way in dict.fromkeys((row["streams"], row["way"]) for row in measured):
        rounds = [row for row in measured if (row["streams"], row["way"]) == (streams, way)]
        mean = {name: statistics.fmean(row[name] for row in rounds) for name in _MEANS}
        floor = next((row["step_ms"] for row in found if (row["streams"], row["way"]) == (streams, "nothing")), None)
        beyond = 1 - floor / mean["step_ms"] if floor else 0.0
        found.append({"streams": streams, "way": way, **mean, "share_beyond_nothing": beyond})
    return found


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One message of the engine core."""

    at: float
    """When the core wrote it, on Linux's clock for all processes."""
    read: float
    """When the front took it."""
    sequences: int
    tokens: int
    cpu: float
    """What the front's process had used by then."""


@dataclass(slots=True)
class StepRecorder:
    """Reads along where every driver takes the engine core's messages."""

    core: Any
    records: list[StepRecord] = field(default_factory=list)

    def __post_init__(self) -> None:
        take = self.core.get_output_async

        async def take_and_record() -> Any:
            outputs = await take()
            if outputs.outputs:
                tokens = sum(len(output.new_token_ids) for output in outputs.outputs)
                times = (outputs.timestamp, time.monotonic())
                self.records.append(StepRecord(*times, len(outputs.outputs), tokens, time.process_time()))
            return outputs

        self.core.get_output_async = take_and_record

    async def record(self, driven: Awaitable[None]) -> None:
        """Record what comes until this ends."""
        self.records.clear()
        await driven

    def figures(self, streams: int) -> dict[str, Any]:
        """Return figures of the steps in which all streams decoded."""
        full = [record for record in self.records if record.sequences == streams][_LEFT_OUT:-_LEFT_OUT]
        if len(full) < 3:
            return {"steps": len(full)}
        first, last = full[0], full[-1]
        tokens = sum(record.tokens for record in full[1:])
        steps = [1000 * (later.at - earlier.at) for earlier, later in pairwise(full)]
        lags = [1000 * (record.read - record.at) for record in full]
        mean = statistics.fmean(steps)
        return {
            "steps": len(full),
            "step_ms": mean,
            "step_p50_ms": percentile(steps, 50),
            "step_p99_ms": percentile(steps, 99),
            "tokens_per_s": tokens / (last.at - first.at),
            "front_cpu_us_per_token": 1e6 * (last.cpu - first.cpu) / tokens,
            "front_busy_share": (last.cpu - first.cpu) / (last.read - first.read),
            "lag_p50_ms": percentile(lags, 50),
            "lag_p99_ms": percentile(lags, 99),
            "share_of_steps_read_a_step_late": statistics.fmean(lag > mean for lag in lags),
        }
