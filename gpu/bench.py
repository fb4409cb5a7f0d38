"""`vllm bench serve` from several processes at once: one alone parses too few events a second for a fast server."""

import json
import math
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from benchmarks.load import percentile

_IMPORT_S = 180.0
_PREPARE_S = 120.0
_LISTS = ("input_lens", "output_lens", "start_times", "ttfts", "itls", "generated_texts", "errors")


@dataclass(frozen=True, slots=True)
class BenchRun:
    """One run of the load. Prompts are random; a seed of its own keeps them out of the prefix cache."""

    streams: int
    prompts: int
    input_tokens: int = 1000
    output_tokens: int = 200
    chat: bool = False
    seed: int = 0
    rate: float = math.inf
    """Requests a second, at random times; infinite: as many as there are streams for."""
    objectives: Mapping[str, float] = field(default_factory=dict)
    """Milliseconds by the bench's names, such as ttft: a reply within all of them is good."""

    @property
    def name(self) -> str:
        """What it is called in results."""
        rate = "" if math.isinf(self.rate) else f"-rate-{self.rate:g}"
        return f"{'chat' if self.chat else 'completions'}-{self.streams}{rate}-seed-{self.seed}"

    def shares(self, clients: int) -> "list[BenchRun]":
        """Divide it among clients; none gets nothing."""
        count = max(1, min(clients, self.streams, self.prompts))
        return [
            replace(
                self,
                streams=_share(self.streams, count, index),
                prompts=_share(self.prompts, count, index),
                seed=1000 * self.seed + index,
                rate=self.rate / count,
            )
            for index in range(count)
        ]

    def arguments(self, url: str, model: str, tokenizer: Path, result: Path) -> list[str]:
        """Return the arguments of `vllm bench serve`."""
        kind = ("openai-chat", "/v1/chat/completions") if self.chat else ("openai", "/v1/completions")
        options = {
            "backend": kind[0],
            "endpoint": kind[1],
            "base-url": url,
            "model": tokenizer,
            "served-model-name": model,
            "dataset-name": "random",
            "random-input-len": self.input_tokens,
            "random-output-len": self.output_tokens,
            "num-prompts": self.prompts,
            "max-concurrency": self.streams,
            "seed": self.seed,
            "request-rate": self.rate,
            # Greedy streams of random weights would soon repeat one token.
            "temperature": 1,
            "top-p": 1,  # not the one that the tokenizer's model asks for
            "result-dir": result.parent,
            "result-filename": result.name,
            "percentile-metrics": "ttft,tpot,itl,e2el",
            "metric-percentiles": "50,99",
        }
        flags = ["--ignore-eos", "--disable-tqdm", "--save-result", "--save-detailed"]
        if self.objectives:
            flags += ["--goodput", *(f"{name}:{most_ms:g}" for name, most_ms in self.objectives.items())]
        return [*flags, *(part for name, value in options.items() for part in (f"--{name}", str(value)))]


def _share(total: int, count: int, index: int) -> int:
    return total // count + (index < total % count)


class BenchClient:
    """One process of `gpu.bench_client`."""

    def __init__(self, python: str, log: Path, environment: Mapping[str, str]) -> None:
        self._log = log
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                [python, "-P", "-m", "gpu.bench_client"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                env={**os.environ, **environment},
            )

    def send(self, line: str) -> None:
        """Write a line to it."""
        assert self._popen.stdin is not None
        self._popen.stdin.write(f"{line}\n")
        self._popen.stdin.flush()

    def expect(self, reply: str, timeout_s: float) -> None:
        """Wait for its next line. Raises RuntimeError with the end of its log if that is another one, or late."""
        assert self._popen.stdout is not None
        # It writes a line only when asked, so none is left in Python's buffer.
        readable, _, _ = select.select([self._popen.stdout], [], [], timeout_s)
        got = self._popen.stdout.readline().strip() if readable else f"nothing for {timeout_s:.0f} s"
        if got != reply:
            raise RuntimeError(f"the load client wrote {got!r}, not {reply!r}:\n{self._log.read_text()[-2000:]}")

    def cpu_seconds(self) -> float:
        """Return its user and system time."""
        times = psutil.Process(self._popen.pid).cpu_times()
        return float(times.user + times.system)

    def stop(self) -> None:
        """End it."""
        self._popen.kill()
        self._popen.communicate()


class BenchClients:
    """Clients that send one load together; they import while servers start."""

    def __init__(self, start: Callable[[int], BenchClient], count: int, out: Path) -> None:
        self._start = start
        self._count = count
        self._out = out
        self._imported = False
        self._clients = [start(number) for number in range(count)]

    def cpu_seconds(self) -> float:
        """Return the user and system time of all."""
        return sum(client.cpu_seconds() for client in self._clients)

    def stop(self) -> None:
        """End all."""
        for client in self._clients:
            client.stop()

    def _restart(self) -> None:
        self.stop()
        self._imported = False
        self._clients = [self._start(number) for number in range(self._count)]

    def run(self, run: BenchRun, url: str, model: str, tokenizer: Path, label: str, timeout_s: float) -> dict[str, Any]:
        """Send a load; return its figures, and write those that each client reports into OUT/LABEL-RUN.json.

        Raises RuntimeError if a client fails or the time is over; then all of them start anew.
        """
        shares = run.shares(self._count)
        with tempfile.TemporaryDirectory(prefix="tokenwire-bench-") as folder:
            paths = [Path(folder) / f"{index}.json" for index in range(len(shares))]
            lines = [
                json.dumps(share.arguments(url, model, tokenizer, path))
                for share, path in zip(shares, paths, strict=True)
            ]
            try:
                self._send(lines, timeout_s)
            except (RuntimeError, OSError):
                self._restart()
                raise
            results = [json.loads(path.read_text()) for path in paths]
        short = [{name: value for name, value in result.items() if name not in _LISTS} for result in results]
        (self._out / f"{label}-{run.name}.json").write_text(json.dumps(short, indent=1) + "\n")
        return {"run": run.name, "streams": run.streams, "prompts": run.prompts, **merged(results)}

    def _send(self, lines: Sequence[str], timeout_s: float) -> None:
        if not self._imported:
            for client in self._clients:
                client.expect("ready", _IMPORT_S)
            self._imported = True
        used = self._clients[: len(lines)]
        for client, line in zip(used, lines, strict=True):
            client.send(line)
        for client in used:
            client.expect("prepared", _PREPARE_S)
        for client in used:
            client.send("go")
        deadline = time.monotonic() + timeout_s
        for client in used:
            client.expect("done", max(0.1, deadline - time.monotonic()))


def merged(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the figures of several clients' detailed results as if one had sent the whole load.

    Their times are on one clock: Linux counts them from the machine's start.
    """
    requests = [each for result in results for each in _requests(result)]
    served = [each for each in requests if not each["error"]]
    errors = sorted({str(each["error"]).strip().splitlines()[-1] for each in requests if each["error"]})
    figures: dict[str, Any] = {"completed": len(served), "failed": len(requests) - len(served), "errors": errors[:5]}
    if not served:
        return figures
    started, ended = min(each["started"] for each in served), max(each["ended"] for each in served)
    seconds, tokens = ended - started, sum(each["tokens"] for each in served)
    gaps = [gap for each in served for gap in each["gaps"]]
    if good := [result["request_goodput"] for result in results if result.get("request_goodput") is not None]:
        figures["goodput_per_s"] = sum(good)
    figures |= {
        "duration_s": seconds,
        "input_tokens": sum(each["input_tokens"] for each in served),
        "output_tokens": tokens,
        "output_tokens_per_s": tokens / seconds,
        "requests_per_s": len(served) / seconds,
        "events_per_token": (len(gaps) + len(served)) / max(1, tokens),
    }
    for name, values in (("ttft", [each["ttft"] for each in served]), ("itl", gaps)):
        figures |= {f"{name}_p{percent}_ms": 1000 * percentile(values, percent) for percent in (50, 99)}
    return figures


def _requests(result: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    names = ("start_times", "ttfts", "itls", "input_lens", "output_lens", "errors")
    for started, ttft, gaps, input_tokens, tokens, error in zip(*(result[name] for name in names), strict=True):
        yield {
            "started": started,
            "ended": started + ttft + sum(gaps),
            "ttft": ttft,
            "gaps": gaps,
            "input_tokens": input_tokens,
            "tokens": tokens,
            "error": error,
        }


@contextmanager
def bench_clients(count: int, out: Path, python: str = sys.executable) -> Iterator[BenchClients]:
    """Run clients within a with block."""
    environment = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
    environment["PYTHONDONTWRITEBYTECODE"] = ""  # as servers: compiling vLLM's modules takes longer than a load
    clients = BenchClients(
        lambda number: BenchClient(python, out / f"bench-client-{number}.log", environment), count, out
    )
    try:
        yield clients
    finally:
        clients.stop()
