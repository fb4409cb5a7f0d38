"""The tables of docs/reference/standard-benchmarks.md, from the results of `make bench-standard`."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from benchmarks.standard.request_table import markdown_table, number, rounds_of, table

Row = Mapping[str, Any]

_NAMES = {"tokenwire": "tokenwire", "smg": "SMG", "vllm": "`vllm serve`"}
_TITLES = {
    "requests": "Requests and tokens: a simulated engine",
    "front-end": "Front-end-bound: a simulated engine",
    "goodput": "Goodput at rising load: a simulated engine",
    "conversations": "Long conversations: a simulated engine",
    "engine": "Engine-bound: the real engine on CPUs",
}

Columns = dict[str, Callable[[Row], str]]


def _milliseconds(name: str) -> Callable[[Row], str]:
    return lambda row: " / ".join(number(row[f"{name}_p{percent}_ms"]) for percent in (50, 99))


_SERVER: Columns = {"server": lambda row: _NAMES[row["server"]]}
_TIMES: Columns = {
    "first token, p50 / p99, ms": _milliseconds("ttft"),
    "gap, p50 / p99, ms": _milliseconds("itl"),
}
_CPU: Columns = {
    "front end's CPU, ms for each request": lambda row: number(1e3 * row["front_end_cpu_s"] / max(1, row["completed"])),
    "µs for each token": lambda row: number(1e6 * row["front_end_cpu_s"] / max(1, row["output_tokens"])),
    "worker's and engine's CPU, s": lambda row: number(row["engine_cpu_s"]),
    "driver's CPU, s": lambda row: number(row["driver_cpu_s"]),
}
_THROUGHPUT: Columns = {
    "failed": lambda row: str(row["failed"]),
    "requests/s": lambda row: number(row["requests_per_s"]),
    "tokens/s": lambda row: number(row["output_tokens_per_s"]),
}
_GOODPUT: Columns = {
    "good requests/s": lambda row: number(row["goodput_per_s"]),
    "of all": lambda row: f"{100 * row['goodput_per_s'] / row['requests_per_s']:.0f} %",
}
_COLUMNS: Mapping[str, Columns] = {
    "front-end": _SERVER | _THROUGHPUT | _TIMES | _CPU,
    "goodput": _SERVER | {"failed": _THROUGHPUT["failed"]} | _GOODPUT | _TIMES | _CPU,
    "conversations": _SERVER | {"prompt tokens": lambda row: f"{row['input_tokens']:,}"} | _THROUGHPUT | _TIMES | _CPU,
    "engine": _SERVER | _THROUGHPUT | _TIMES | _CPU,
}


def tables(results: Mapping[str, Any]) -> str:
    """Return the sections of all parts as Markdown."""
    return "".join(_section(name, results[name]) for name in _TITLES if name in results)


def _section(name: str, found: Mapping[str, Any]) -> str:
    """Return one part: below each other what the servers did with the same load of the same tool."""
    if name == "requests":
        return f"### {_TITLES[name]}\n\n{table(found['rounds'])}\n{_made(found, rounds_of(found['rounds']))}\n\n"
    columns = _COLUMNS[name]
    rows = sorted(found["rows"], key=lambda row: list(_NAMES).index(row["server"]))
    loads = list(dict.fromkeys(_load(row) for row in found["rows"]))
    lines = [
        [load if not number else "", *_cells(columns, row)]
        for load in loads
        for number, row in enumerate(row for row in rows if _load(row) == load)
    ]
    return f"### {_TITLES[name]}\n\n{markdown_table(['load', *columns], lines)}\n{_made(found)}\n\n"


def _made(found: Mapping[str, Any], how: str = "") -> str:
    versions = ", ".join(f"{tool} {version}" for tool, version in found["versions"].items())
    about = f"{found['when']}, {found['cpus']} cores, Python {found['python']}; {versions}."
    return f"*{about}{_sentence(how)}{_sentence(found['note'])}*"


def _cells(columns: Columns, row: Row) -> Iterable[str]:
    if reason := row.get("skipped"):
        return [_NAMES[row["server"]], reason, *[""] * (len(columns) - 2)]
    return [cell(row) for cell in columns.values()]


def _load(row: Row) -> str:
    load = row["load"]
    if "sessions" in load:
        return f"{row['tool']}: {load['sessions']} sessions of coding agents, {load['streams']} at a time"
    tokens = f"{load['input_tokens']} tokens in, {load['output_tokens']} out"
    if "rate" in load:
        return f"{load['rate']} requests/s, {tokens}"
    return f"{row['tool']}: {load['streams']} streams, {load['requests']} requests, {tokens}"


def _sentence(note: str) -> str:
    return f" {note.rstrip('.')}." if note else ""
