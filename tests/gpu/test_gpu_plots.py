"""The plot of the step `load`."""

import json
from typing import Any

import pytest

pytest.importorskip("matplotlib")

from benchmarks.plots import PLOTS, RESULTS
from gpu.plots import drawn, front_cpu, rows_of

pytestmark = pytest.mark.slow


def outcome(tokens_per_s: float) -> dict[str, Any]:
    """Return what the step writes for two servers."""

    def part(streams: int) -> dict[str, Any]:
        times = {f"{name}_{percentile}_ms": 5.0 for name in ("ttft", "itl") for percentile in ("p50", "p99")}
        cpu = {"coordinator": 20.0, "worker": 5.0, "engine": 100.0}
        row = {"run": f"completions-{streams}-seed-1", "streams": streams, "output_tokens_per_s": tokens_per_s}
        return row | times | {"cpu_us_per_token": cpu}

    parts: dict[str, Any] = {
        f"{server}, {streams}": part(streams) for server in ("vllm", "tokenwire") for streams in (64, 256)
    }
    parts |= {"vllm": {"status": "passed"}, "vllm, conversations": {"turns": []}}
    return {"step": "load", "result": {"parts": parts}}


def test_loads_with_replies_are_drawn() -> None:
    """Not the servers themselves, nor conversations."""
    rows = rows_of(outcome(100))

    assert [(row["server"], row["streams"]) for row in rows] == [
        ("vllm", 64),
        ("vllm", 256),
        ("tokenwire", 64),
        ("tokenwire", 256),
    ]
    assert front_cpu(rows[0]) == 25


def test_other_results_give_another_gpu_plot() -> None:
    """And the same ones the same."""
    assert drawn(outcome(100)) == drawn(outcome(100)) != drawn(outcome(200))


def test_the_plot_of_the_documentation_is_current() -> None:
    """After new results: `make plots`."""
    assert (PLOTS / "gpu.svg").read_text() == drawn(json.loads((RESULTS / "gpu" / "load.json").read_text()))
