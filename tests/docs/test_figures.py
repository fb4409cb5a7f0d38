"""Tables of measured figures show the committed results of the benchmark that the page names."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.docs.commands import ROOT

EXPLANATION = ROOT / "docs" / "explanation"
Row = Mapping[str, Any]


def results(name: str, table: str) -> list[Row]:
    """Return a table of benchmarks/results."""
    rows: list[Row] = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())[table]
    return rows


def streaming() -> Iterator[tuple[str, list[float]]]:
    """Yield the CPU time per token by the number of streams."""
    rows = {(row["case"], row["streams"]): row for row in results("streaming", "streaming")}
    for streams in sorted({streams for _, streams in rows}):
        cases = ("bare writes", "plain", "4 stop strings", "bare uvicorn")
        front = [rows[case, streams]["coordinator_us_per_token"] for case in cases]
        yield str(streams), [*front, rows["plain", streams]["worker_us_per_token"]]


def fleet() -> Iterator[tuple[str, list[float]]]:
    """Yield tokens per frame, frames per second, and the CPU time of each run, by the number of workers."""
    names = {
        "2,000 streams, 1 worker": ("1 worker", 1),
        "2,000 streams, 24 workers": ("24 workers", 24),
        "83 streams, 1 worker": ("1 worker, as many frames as many", 1),
        "2,000 bare writes, at once": ("bare writes, at once", 0),
        "2,000 bare writes, in 24 portions": ("bare writes, 24 times a step", 0),
    }
    for shown, (case, workers) in names.items():
        runs = [row for row in results("fleet", "fleet") if row["case"] == case]
        frames = (24 if "24" in shown else 1) * 1000 / runs[0]["step_ms"]
        per_frame = [runs[0]["streams"] // workers] if workers else []
        yield shown, [*per_frame, frames, *(row["coordinator_us_per_token"] for row in runs)]


def long_prompts() -> Iterator[tuple[str, list[float]]]:
    """Yield gaps between tokens, and the time to a long prompt's first one, by what arrives."""
    names = ("nothing", "chat of one message", "chat of 400 messages", "the same chat, a turn further", "raw text")
    for shown, row in zip(names, results("long-prompts", "long_prompts"), strict=True):
        gaps = [row["itl_p50_ms"], row["itl_p99_ms"], row["itl_max_ms"]]
        yield shown, gaps + ([row["prompt_p50_ms"]] if row["prompts"] else [])


def embedded_texts() -> Iterator[tuple[str, list[float]]]:
    """Yield the CPU time of a text in each server, by the texts of a request and their encoding."""
    rows = {tuple(row.values())[:3]: row["us_per_text"] for row in results("embeddings", "embeddings")}
    for texts in (64, 1):
        for shown, encoding in (("base64", "base64"), ("numbers", "float")):
            yield f"{texts}, {shown}", [rows[case, encoding, texts] for case in ("coordinator", "vllm serve")]


def pictures() -> Iterator[tuple[str, list[float]]]:
    """Yield gaps between tokens, and the time to the reply to a picture, without and with pictures."""
    for shown, row in zip(("none", "8 new ones a second"), results("pictures", "pictures"), strict=True):
        gaps = [row["itl_p50_ms"], row["itl_p99_ms"], row["itl_max_ms"]]
        yield shown, gaps + ([row["picture_p50_ms"]] if row["pictures"] else [])


def history() -> Iterator[tuple[str, list[float]]]:
    """Yield the CPU time of a turn by the length of its history; one size of short histories is not shown."""
    for row in results("history", "history_cost"):
        if row["history_tokens"] != 3239:
            times = [row["exact_ms"], row["template_ms"], row["first_ms"]]
            yield f"{row['history_tokens']:,}", [row["messages"], *times]


def routing() -> Iterator[tuple[str, list[float]]]:
    """Yield the share of cached tokens and the delay of first tokens by policy."""
    rows = results("routing", "routing")
    for load in dict.fromkeys(row["load"] for row in rows):
        policies = [row for row in rows if row["load"] == load]
        delays = [row[f"ttft_{kind}_ms"] for row in policies for kind in ("mean", "p90")]
        yield load, [*(row["cached"] for row in policies), *delays]


def fairness() -> Iterator[tuple[str, list[float]]]:
    """Yield replies, delays of first tokens and Jain's index by the queue's order."""
    rows = results("fairness", "fairness")
    for order in results("fairness", "fairness_index"):
        tenants = [row for row in rows if row["order"] == order["order"]]
        replies, delays = [row["replies"] for row in tenants], [row["ttft_p95_ms"] / 1000 for row in tenants]
        yield order["order"], [*replies, *delays, order["jain"]]


TABLES = {
    "why.md": (streaming, long_prompts, embedded_texts, pictures),
    "scheduling.md": (fleet, routing, fairness),
    "exactness.md": (history,),
}
ROWS = [
    pytest.param(page, shown, values, id=f"{page} {shown}")
    for page, tables in TABLES.items()
    for table in tables
    for shown, values in table()
]


@pytest.mark.parametrize(("page", "shown", "values"), ROWS)
def test_a_row_shows_what_was_measured(page: str, shown: str, values: list[float]) -> None:
    """Rounded, in the order of its columns."""
    lines = (EXPLANATION / page).read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(f"| {shown} |")]
    figures = re.findall(r"[\d.]+", line.removeprefix(f"| {shown} |").replace(",0", "0"))

    assert len(figures) == len(values)
    for figure, value in zip(figures, values, strict=True):
        assert abs(float(figure) - value) <= 0.5001 * 10.0 ** -len(figure.partition(".")[2]), (figure, value)
