"""Several processes of `vllm bench serve` as one load."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpu.bench import BenchClient, BenchClients, BenchRun, merged

RUN = BenchRun(streams=10, prompts=25, seed=3)


def detailed(started: float, ttft: float, gaps: list[float], error: str = "") -> dict[str, Any]:
    """Return a detailed result of the bench with one request."""
    return {
        "start_times": [started],
        "ttfts": [ttft],
        "itls": [gaps],
        "input_lens": [8],
        "output_lens": [0 if error else 1 + len(gaps)],
        "errors": [error],
        "duration": 5,
    }


class FakeClient(BenchClient):
    """Writes a result where its arguments say, or fails without one."""

    def __init__(self, result: dict[str, Any] | None) -> None:
        self.result = result
        self.said: list[str] = []
        self.is_stopped = False

    def send(self, line: str) -> None:
        if line == "go" and self.result is not None:
            options = json.loads(self.said[-1])
            folder, name = (Path(options[options.index(f"--result-{part}") + 1]) for part in ("dir", "filename"))
            (folder / name).write_text(json.dumps(self.result))
        self.said.append(line)

    def expect(self, reply: str, timeout_s: float) -> None:
        if reply == "done" and self.result is None:
            raise RuntimeError("nothing came")

    def stop(self) -> None:
        self.is_stopped = True


def test_shares_make_up_the_load() -> None:
    """None is empty, and no two have the same prompts."""
    shares = RUN.shares(4)

    assert [sum(share.streams for share in shares), sum(share.prompts for share in shares)] == [10, 25]
    assert len({share.seed for share in shares}) == 4
    assert len(BenchRun(streams=2, prompts=2).shares(8)) == 2


def test_shares_of_a_rate_make_up_the_rate() -> None:
    """Each has the objectives, too; without a rate requests are sent as soon as a stream is free."""
    shares = replace(RUN, rate=30.0, objectives={"ttft": 200}).shares(3)

    arguments = [share.arguments("http://localhost", "m", Path("m"), Path("out.json")) for share in shares]
    assert [each[each.index("--request-rate") + 1] for each in arguments] == ["10.0"] * 3
    assert all(each[each.index("--goodput") + 1] == "ttft:200" for each in arguments)
    alone = RUN.arguments("http://localhost", "m", Path("m"), Path("out.json"))
    assert alone[alone.index("--request-rate") + 1] == "inf"
    assert "--goodput" not in alone


def test_good_requests_of_all_clients_are_added() -> None:
    """As the bench counted them; without objectives there are none."""
    results = [detailed(10.0, 0.5, [0.25]) | {"request_goodput": 2.5}, detailed(10.5, 0.7, [0.8])]

    assert merged(results)["goodput_per_s"] == 2.5
    assert "goodput_per_s" not in merged(results[1:])


def test_loads_of_other_seeds_have_other_prompts() -> None:
    """Else a later one would find its prompts in the prefix cache."""
    seeds = [share.seed for seed in range(9) for share in BenchRun(64, 128, seed=seed).shares(8)]

    assert len(seeds) == len(set(seeds))


def test_requests_of_all_clients_count_once() -> None:
    """Throughput is that of the time from the first request to the last token of any client."""
    figures = merged([detailed(10.0, 0.5, [0.25, 0.25]), detailed(10.5, 0.7, [0.8, 0.0])])

    assert (figures["completed"], figures["failed"], figures["output_tokens"]) == (2, 0, 6)
    assert figures["duration_s"] == pytest.approx(2.0)
    assert figures["output_tokens_per_s"] == pytest.approx(3.0)
    assert figures["ttft_p50_ms"] == pytest.approx(600)
    assert figures["itl_p50_ms"] == pytest.approx(250)


def test_failed_requests_are_counted_apart() -> None:
    """With the last lines of their errors; a load without any reply has no times."""
    failed = detailed(1.0, 0.0, [], "Traceback\n  ...\nConnectionResetError\n")

    assert merged([failed, detailed(1.0, 0.5, [])])["failed"] == 1
    assert merged([failed]) == {"completed": 0, "failed": 1, "errors": ["ConnectionResetError"]}


def test_a_run_keeps_what_the_clients_report(tmp_path: Path) -> None:
    """In a file, without the list of every gap."""
    clients = BenchClients(lambda number: FakeClient(detailed(number, 0.5, [0.1])), 2, tmp_path)

    row = clients.run(RUN, "http://x", "model", Path("/tokenizer"), "bench-a", 1)

    assert (row["run"], row["completed"]) == ("completions-10-seed-3", 2)
    kept = json.loads((tmp_path / "bench-a-completions-10-seed-3.json").read_text())
    assert [each["duration"] for each in kept] == [5, 5]
    assert "itls" not in kept[0]


def test_after_a_failure_all_clients_are_new(tmp_path: Path) -> None:
    """The others are in the middle of their load."""
    started: list[FakeClient] = []

    def start(number: int) -> BenchClient:
        started.append(FakeClient(None if len(started) == 1 else detailed(number, 0.5, [])))
        return started[-1]

    clients = BenchClients(start, 2, tmp_path)
    with pytest.raises(RuntimeError, match="nothing came"):
        clients.run(RUN, "http://x", "model", Path("/tokenizer"), "a", 1)

    assert [client.is_stopped for client in started] == [True, True, False, False]
    assert clients.run(RUN, "http://x", "model", Path("/tokenizer"), "a", 1)["completed"] == 2
