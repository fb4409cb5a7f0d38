"""The load generators: AIPerf and `vllm bench serve`, each with its own figures under common names."""

import json
import os
import resource
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.standard.servers import ENVIRONMENTS
from gpu.bench import BenchClients, BenchRun
from gpu.contenders import Contender
from tests.conformance.clients.environments import python_with

AIPERF = "aiperf==0.13.0"
AGENTIC_CODE: Mapping[str, Any] = {
    "max_prompt_tokens": 7000,
    "block_size": 64,
    "cache": {"layer1_tokens": 1500, "layer1_5_tokens": 500, "layer2": {"mean": 500, "median": 300}},
    "new_tokens_per_turn": {"mean": 300, "median": 200},
    "generation_length": {"mean": 60, "median": 50, "max": 100},
    "turns": {"mean": 12, "median": 11, "min": 6, "max": 20, "allow_truncation": True},
    "reset": None,
    "inter_turn_delay": {"agentic_fraction": 1.0, "agentic_delay": {"mean": 100, "median": 100}},
}
"""The synthesizer's own sessions, scaled down to the embedded model's context of 8,192 tokens, and without people who
think: a turn follows the one before after 100 ms."""

_TIMEOUT_S = 300.0
_TOKENIZER = "tokenwire/embedded"
_OBJECTIVES = {"ttft": "time_to_first_token", "tpot": "inter_token_latency"}
"""AIPerf's names of the bench's objectives."""
_RAW = (
    *("request_latency", "time_to_first_token", "inter_token_latency", "inter_chunk_latency", "benchmark_duration"),
    *("input_sequence_length", "output_sequence_length", "request_throughput", "output_token_throughput", "goodput"),
    *("request_count", "completed_request_count", "total_usage_prompt_tokens", "total_usage_completion_tokens"),
)
_STATISTICS = ("avg", "min", "p50", "p90", "p99", "max")

Figures = dict[str, Any]
"""Figures by common names; `raw` has the tool's own numbers, `driver_cpu_s` what the tool itself used."""


@dataclass(frozen=True, slots=True)
class Sessions:
    """Long conversations of coding agents: AIPerf's synthesizer makes them, and they are held some at a time."""

    count: int
    streams: int

    @property
    def name(self) -> str:
        """What it is called in results."""
        return f"agentic-code-{self.count}-sessions"


class VllmBench:
    """`vllm bench serve`, in one process that imports it once."""

    name = "vllm bench serve"

    def __init__(self, clients: BenchClients, out: Path) -> None:
        self._clients = clients
        self._out = out

    def run(self, load: BenchRun, contender: Contender) -> Figures:
        """Send a load. Raises RuntimeError if the tool fails."""
        model, before = contender.model, self._clients.cpu_seconds()
        found = self._clients.run(load, contender.url, model.name, model.folder, contender.name, _TIMEOUT_S)
        used = self._clients.cpu_seconds() - before
        raw = json.loads((self._out / f"{contender.name}-{load.name}.json").read_text())
        return bench_figures(found) | {"driver_cpu_s": round(used, 2), "raw": [_numbers(each) for each in raw]}


def bench_figures(merged: Mapping[str, Any]) -> Figures:
    """Return what `gpu.bench` found, without what a row says already."""
    return {name: _rounded(value) for name, value in merged.items() if name not in ("run", "streams", "prompts")}


class Aiperf:
    """AIPerf, a command of some processes for each load."""

    name = "AIPerf"

    def __init__(self, out: Path, model: Path) -> None:
        self._python = python_with(ENVIRONMENTS / "aiperf", [AIPERF])
        self._out = out
        self._hub = out / "hub"
        # Offline it takes tokenizers from the hub's cache alone, so the model's folder becomes one.
        cached = self._hub / f"models--{_TOKENIZER.replace('/', '--')}"
        for folder in ("refs", "snapshots"):
            (cached / folder).mkdir(parents=True, exist_ok=True)
        (cached / "refs" / "main").write_text("local")
        if not (cached / "snapshots" / "local").exists():
            (cached / "snapshots" / "local").symlink_to(model)

    def run(self, load: BenchRun | Sessions, contender: Contender) -> Figures:
        """Send a load. Raises RuntimeError if the tool fails."""
        arguments = self._sessions(load) if isinstance(load, Sessions) else aiperf_arguments(load)
        artifacts = self._out / f"aiperf-{contender.name}-{load.name}"
        arguments += ["--url", contender.url, "--model", contender.model.name, "--artifact-dir", str(artifacts)]
        before = _children_cpu_s()
        self._call("profile", *arguments, *_ALWAYS)
        used = _children_cpu_s() - before
        exported = json.loads((artifacts / "profile_export_aiperf.json").read_text())
        return aiperf_figures(exported) | {"driver_cpu_s": round(used, 2)}

    def _sessions(self, load: Sessions) -> list[str]:
        folder = self._out / load.name
        if not folder.exists():
            config = self._out / "agentic-code.json"
            config.write_text(json.dumps(AGENTIC_CODE))
            sizes = ("--num-sessions", str(load.count), "--config", str(config), "--output", str(folder))
            self._call("synthesize", "agentic-code", *sizes)
        (trace,) = folder.glob("*/dataset.jsonl")
        turns = len(trace.read_text().splitlines())
        arguments = ["--custom-dataset-type", "mooncake_trace", "--input-file", str(trace), "--no-fixed-schedule"]
        arguments += ["--isl-block-size", str(AGENTIC_CODE["block_size"])]
        return [*arguments, "--concurrency", str(load.streams), "--request-count", str(turns)]

    def _call(self, *arguments: str) -> None:
        variables = {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(self._hub), "TOKENIZERS_PARALLELISM": "false"}
        command = [str(self._python), "-m", "aiperf", *arguments]
        result = subprocess.run(
            command, env={**os.environ, **variables}, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
        )
        if result.returncode:
            raise RuntimeError(f"aiperf {arguments[0]} failed:\n{(result.stdout + result.stderr)[-3000:]}")


_ALWAYS = (
    *("--endpoint-type", "chat", "--streaming", "--tokenizer", _TOKENIZER, "--random-seed", "1"),
    *("--use-server-token-count", "--use-legacy-max-tokens", "--extra-inputs", "ignore_eos:true"),
    *("--no-gpu-telemetry", "--no-server-metrics", "--ui", "none"),
    *("--workers-max", "1", "--record-processor-service-count", "1"),
)


def aiperf_arguments(load: BenchRun) -> list[str]:
    """Return AIPerf's arguments for what `vllm bench serve` calls a load of random prompts."""
    options = {
        "isl": load.input_tokens,
        "osl": load.output_tokens,
        "concurrency": load.streams,
        "request-count": load.prompts,
    }
    arguments = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    if load.objectives:
        goals = " ".join(f"{_OBJECTIVES[name]}:{most_ms:g}" for name, most_ms in load.objectives.items())
        arguments += ["--goodput", goals]
    return arguments


def aiperf_figures(exported: Mapping[str, Any]) -> Figures:
    """Return the figures of what AIPerf exported, under the names of `gpu.bench`.

    Its `inter_token_latency` is a mean of each request; what the bench calls ITL is its `inter_chunk_latency`.
    """

    def of(metric: str, statistic: str = "avg") -> float:
        return float(exported.get(metric, {}).get(statistic) or 0.0)

    served = round(of("request_count"))
    figures: Figures = {
        "completed": served,
        "failed": round(of("completed_request_count")) - served,
        "duration_s": of("benchmark_duration"),
        "input_tokens": round(of("total_usage_prompt_tokens")),
        "output_tokens": round(of("total_usage_completion_tokens")),
        "output_tokens_per_s": of("output_token_throughput"),
        "requests_per_s": of("request_throughput"),
    }
    if "goodput" in exported:
        figures["goodput_per_s"] = of("goodput")
    for name, metric in (("ttft", "time_to_first_token"), ("itl", "inter_chunk_latency")):
        figures |= {f"{name}_p{percent}_ms": of(metric, f"p{percent}") for percent in (50, 99)}
    raw = {name: _statistics(exported[name]) for name in _RAW if name in exported}
    return {name: _rounded(value) for name, value in figures.items()} | {"raw": raw}


def _statistics(metric: Mapping[str, Any]) -> dict[str, float]:
    return {name: _rounded(metric[name]) for name in _STATISTICS if metric.get(name) is not None}


def _numbers(result: Mapping[str, Any]) -> dict[str, float]:
    """Leave out what is text: names of this machine's folders."""
    return {name: _rounded(value) for name, value in result.items() if isinstance(value, int | float)}


def _rounded(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


Tool = VllmBench | Aiperf


def driven(tools: Sequence[Tool], name: str) -> Tool:
    """Return the tool of this name."""
    return next(tool for tool in tools if tool.name == name)
