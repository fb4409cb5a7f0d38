"""The table of single requests and tokens: each figure as it was and as it is, beside other servers and the floor."""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

Found = Mapping[str, Mapping[str, Sequence[Mapping[str, float]]]]
"""Figures of each round, by case and by server."""

_HEAD = (
    *("CPU of the front end, or what is named", "target", "before: tokenwire, SMG", "tokenwire", "SMG", "`vllm serve`"),
    *("tokenwire / SMG", "floor"),
)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the table: a case and one of its figures."""

    title: str
    case: str
    figure: str
    unit: str
    target: str
    before: str
    """As first measured, on two cores of a slower machine."""
    floor: str = ""
    """The server that shows it, and what it is called."""


_LINES = (
    Line(
        "streamed chat of one token, 256 at once on new connections",
        "burst",
        "ms",
        "ms",
        "SMG's",
        "2.85, 0.80",
        "uvicorn",
    ),
    Line("the same, 32 connections kept alive", "kept alive", "ms", "ms", "SMG's", "2.28, 0.75", "uvicorn"),
    Line("chat, whole, kept alive", "chat whole", "ms", "ms", "SMG's", "1.83, 0.70"),
    Line("the same, one after the other", "chat alone", "ms", "ms", "SMG's", ""),
    Line("completion of ids, whole, kept alive", "ids whole", "ms", "ms", "SMG's chat", "1.53, -"),
    Line("`GET /v1/models`, kept alive", "models", "ms", "ms", "SMG's", "0.42, 0.08"),
    Line(
        "time to the first token, p50, of the 256 at once",
        "burst",
        "ttft_ms",
        "ms",
        "SMG's",
        "404, 142 to 200",
        "uvicorn",
    ),
    Line(
        "streamed token, 256 streams, without their starts", "tokens", "us", "µs", "0.45 of SMG's", "24, 41", "writes"
    ),
    Line("its chunks: below 1 where steps were merged", "tokens", "chunks", "", "1", "1"),
    Line("the same with 4 stop strings", "stop strings", "us", "µs", "+5 %", ""),
    Line(
        "the same with top-5 log-probabilities",
        "log-probabilities",
        "us",
        "µs",
        "1.4 × a plain token",
        "2.2 × a plain token",
    ),
    Line("512 streams that ask for 128,000 tokens/s: tokens/s", "behind", "tokens_per_s", "", "", "31,000, 13,000"),
    Line("their time to the first token, p50", "behind", "ttft_ms", "ms", "", "2,000 to 2,700, 2,200 to 3,300"),
    Line("each of their tokens", "behind", "us", "µs", "", ""),
    Line("chat of 4,000 words never seen, whole", "cold", "ms", "ms", "2 ms", "10, 0.84", "tokenizers"),
    Line("second turn of a chat of 16,000 tokens, whole, 8 at once", "second turns", "ms", "ms", "0.5 ms", ""),
    Line("the same, one after the other", "second turn", "ms", "ms", "0.5 ms", ""),
    Line("`POST /tokenize` of 4,000 words never seen", "tokenize", "ms", "ms", "2 ms", "", ""),
)
_FLOORS = {"uvicorn": "bare uvicorn", "writes": "bare writes", "tokenizers": "the tokenizer's library"}


def table(found: Found) -> str:
    """Return the table as Markdown, and what it says of tokenwire alone."""
    rows = (_cells(found, line) for line in _LINES)
    return markdown_table(_HEAD, rows) + "\n" + "\n".join(_alone(found)) + "\n"


def markdown_table(head: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table as Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _cells(found: Found, line: Line) -> Iterator[str]:
    yield line.title
    yield line.target
    yield line.before
    for server in ("tokenwire", "smg", "vllm"):
        yield _value(found, line, server)
    yield _ratio(found, line.case, "tokenwire", line.case, "smg", line.figure)
    yield f"{_FLOORS[line.floor]}: {_value(found, line, line.floor)}" if line.floor else ""


def _alone(found: Found) -> Iterator[str]:
    """Yield what is compared with tokenwire's own plain token."""
    for what, case, server, plain, other in (
        ("with 4 stop strings", "stop strings", "tokenwire", "tokens", "tokenwire"),
        ("with top-5 log-probabilities", "log-probabilities", "tokenwire", "tokens", "tokenwire"),
        ("from one of 24 workers, with 1,024 streams,", "fleet", "24 workers", "fleet", "1 worker"),
    ):
        yield f"* A token {what} costs tokenwire {_ratio(found, case, server, plain, other, 'us')} times a plain one."


def _value(found: Found, line: Line, server: str) -> str:
    rounds = found.get(line.case, {}).get(server)
    if not rounds:
        return "-"
    value = statistics.median(each[line.figure] for each in rounds)
    return f"{number(value)} {line.unit}".strip()


def _ratio(found: Found, case: str, server: str, other_case: str, other: str, figure: str) -> str:
    """Return the median of the ratios in each round: what disturbs a round disturbs both."""
    rounds, others = found.get(case, {}).get(server, ()), found.get(other_case, {}).get(other, ())
    ratios = [one[figure] / two[figure] for one, two in zip(rounds, others, strict=False)]
    return f"{statistics.median(ratios):.2f}" if ratios else "-"


def number(value: float) -> str:
    """Return three digits that say something."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def rounds_of(found: Found) -> str:
    """Return how many rounds there were."""
    return f"Medians of {max(len(rounds) for servers in found.values() for rounds in servers.values())} rounds"
