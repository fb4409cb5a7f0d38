"""Figures of the engine core's steps."""

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from gpu.steps.overhead import StepRecorder, means


class ScriptedCore:
    """Gives steps of a number of sequences, one after the other, each a hundredth of a second after the last."""

    def __init__(self, sequences: list[int]) -> None:
        begun = time.monotonic()
        self._steps = iter(
            SimpleNamespace(timestamp=begun + 0.01 * number, outputs=[SimpleNamespace(new_token_ids=[1])] * count)
            for number, count in enumerate(sequences)
        )

    async def get_output_async(self) -> Any:
        return next(self._steps)


async def figures_of(sequences: list[int], streams: int) -> dict[str, Any]:
    """Read all steps through a recorder."""
    core = ScriptedCore(sequences)
    recorder = StepRecorder(core)

    async def drive() -> None:
        for _ in sequences:
            await core.get_output_async()

    await recorder.record(drive())
    return recorder.figures(streams)


async def test_steps_with_all_streams_count() -> None:
    """Not those in which some begin or have ended, nor the first and last few."""
    figures = await figures_of([1, 2, *[4] * 20, 3, 0, 1], streams=4)

    assert figures["steps"] == 10
    assert figures["step_ms"] == pytest.approx(10)
    assert figures["tokens_per_s"] == pytest.approx(400)


async def test_too_few_steps_give_no_figures() -> None:
    """A mean of nothing would be an error."""
    assert await figures_of([4] * 12, streams=4) == {"steps": 2}


def test_what_is_beyond_nothing_is_a_share_of_the_step() -> None:
    """Of the means of all rounds."""

    def rows() -> Iterator[dict[str, Any]]:
        others = {"tokens_per_s": 1.0, "front_cpu_us_per_token": 1.0, "front_busy_share": 0.1, "lag_p50_ms": 0.1}
        for way, steps in (("nothing", (3.0, 5.0)), ("generate", (4.0, 6.0))):
            for step_ms in steps:
                yield {"way": way, "streams": 64, "step_ms": step_ms, **others}
        yield {"status": "skipped"}

    shares = {row["way"]: row["share_beyond_nothing"] for row in means(rows())}

    assert shares == {"nothing": 0, "generate": pytest.approx(0.2)}
