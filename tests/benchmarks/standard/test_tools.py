"""What the load generators write is read, under common names."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.standard.tools import aiperf_arguments, aiperf_figures, bench_figures
from gpu.bench import BenchRun, merged

CANNED = Path(__file__).parent / "canned"


def canned(name: str) -> dict[str, Any]:
    """Return what a tool wrote, in the version that is pinned."""
    read = json.loads((CANNED / name).read_text())
    assert isinstance(read, dict)
    return read


def test_what_aiperf_exports_is_read() -> None:
    """Gaps are those between chunks, as the other tool's; percentiles are AIPerf's own."""
    figures = aiperf_figures(canned("aiperf.json"))

    assert (figures["completed"], figures["failed"], figures["output_tokens"]) == (40, 0, 2000)
    assert figures["output_tokens_per_s"] == pytest.approx(357.24, abs=0.01)
    assert figures["ttft_p50_ms"] == pytest.approx(45.6, abs=0.1)
    assert figures["itl_p99_ms"] == pytest.approx(47.17, abs=0.01)
    assert figures["goodput_per_s"] == pytest.approx(7.145, abs=0.001)


def test_what_vllm_bench_serve_writes_is_read() -> None:
    """Good requests are those that the tool itself counted."""
    figures = bench_figures(merged([canned("vllm-bench.json")]))

    assert (figures["completed"], figures["failed"], figures["output_tokens"]) == (4, 0, 20)
    assert figures["ttft_p50_ms"] == pytest.approx(140.7, abs=0.1)
    assert figures["goodput_per_s"] == pytest.approx(2.417, abs=0.001)


def test_both_tools_have_the_same_figures() -> None:
    """So one table shows both."""
    aiperf, bench = aiperf_figures(canned("aiperf.json")), bench_figures(merged([canned("vllm-bench.json")]))

    assert set(bench) - set(aiperf) == {"errors", "events_per_token"}
    assert set(aiperf) - set(bench) == {"raw"}


def test_failed_requests_are_counted() -> None:
    """AIPerf counts those that were served, and all."""
    exported = canned("aiperf.json")
    exported["request_count"]["avg"] = 37.0

    figures = aiperf_figures(exported)

    assert (figures["completed"], figures["failed"]) == (37, 3)


def test_raw_figures_are_numbers_alone() -> None:
    """No folder or host of the machine gets into results."""
    raw = aiperf_figures(canned("aiperf.json"))["raw"]

    assert raw["time_to_first_token"]["p99"] == pytest.approx(151.3, abs=0.1)
    assert all(isinstance(value, float) for metric in raw.values() for value in metric.values())


def test_aiperf_gets_the_load_of_the_other_tool() -> None:
    """Lengths, concurrency and objectives, under AIPerf's names."""
    load = BenchRun(32, 192, 64, 128, objectives={"ttft": 200, "tpot": 40})

    assert aiperf_arguments(load) == [
        *("--isl", "64", "--osl", "128", "--concurrency", "32", "--request-count", "192"),
        *("--goodput", "time_to_first_token:200 inter_token_latency:40"),
    ]
