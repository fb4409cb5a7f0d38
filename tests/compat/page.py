"""The tables of docs/reference/compatibility.md that are written from the results of `make compat`."""

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

from tests.compat.minor import ENGINE_TESTS, FAILOVER, FAILOVERS, PARITY

Minor = Mapping[str, Any]
Found = Mapping[str, Any]
"""The results of a check, with its date and commit."""


def tables(results: Mapping[str, Any]) -> str:
    """Return all tables as Markdown."""
    minors = dict(sorted(results["minors"].items()))
    parts = [_checks(minors), _capabilities(minors), _internals({**minors, **results.get("sources", {})})]
    if fleet := results.get("fleet"):
        parts.append(_fleet(fleet))
    return "\n".join(parts)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _checks(minors: Mapping[str, Minor]) -> str:
    head = ["vLLM", "torch", "engine tests", "parity", "failover"]
    shown = {ENGINE_TESTS: _tests, PARITY: _parity, FAILOVER: _failover}
    rows = (
        [_version(each), each["torch"], *(_check(each["checks"].get(name), show) for name, show in shown.items())]
        for each in minors.values()
    )
    return _table(head, rows)


def _version(minor: Minor) -> str:
    borrowed = minor.get("borrowed_build")
    return f"{minor['version']} on the build of {borrowed}" if borrowed else str(minor["version"])


def _check(found: Found | None, show: Callable[[Found], str]) -> str:
    return "not run" if found is None else f"{show(found)} ({_when(found)})"


def _when(found: Found) -> str:
    return f"{found['date']}, {found['commit']}"


def _tests(found: Found) -> str:
    skipped = sum(found.get("skipped", {}).values())
    failed = f", {len(found['failed'])} failed" if found["failed"] else ""
    return f"{found['passed']} passed, {skipped} skipped{failed}"


def _parity(found: Found) -> str:
    if "unexplained" not in found:
        return f"failed: {found['reason'][:80]}"
    known = sum(found["of_the_minor"].values())
    counts = {
        "documented": found["verdicts"].get("explained", 0),
        "of the minor": known,
        "unstable": found["verdicts"].get("unstable", 0),
    }
    kinds = [f"{count} {kind}" for kind, count in counts.items() if count]
    kinds.append(f"{len(found['unexplained'])} unexplained")
    return f"{found['compared']} compared: {', '.join(kinds)}"


def _failover(found: Found) -> str:
    return f"{len(found.get('exact', ()))} of {len(FAILOVERS)} exact"


_SHOWN: dict[str, Callable[[Minor], str]] = {
    "driver": lambda minor: minor["checks"].get(PARITY, {}).get("driver", "not run"),
    "sampling parameters that it lacks": lambda minor: _codes(minor["capabilities"]["unsupported_sampling_params"]),
    "log-probabilities of a step": lambda minor: f"{len(minor['capabilities']['logprob_columns'])} fields",
    "scores of a prompt's chosen ids": lambda minor: _yes(minor["capabilities"]["prompt_scores"]),
    "seeds beside other requests, on CPUs": lambda minor: (
        "vLLM's" if minor["capabilities"]["seeds_in_mixed_batches"] else "the worker's"
    ),
    "what a seed draws first of 4,096 equal ids, on CPUs": lambda minor: str(minor["capabilities"]["seeded_draw"]),
    "batch invariance on GPUs": lambda minor: _yes(minor["capabilities"]["batch_invariant_on_gpus"]),
    "structured outputs": lambda minor: _codes(minor["capabilities"]["structured_output_backends"]),
    "LoRA": lambda minor: _yes(minor["capabilities"]["lora"]),
    "weight transfer": lambda minor: _codes(minor["capabilities"]["weight_transfer"]),
    "end of a weight transfer": lambda minor: _yes(minor["capabilities"]["weight_transfer_shutdown"]),
    "version of the weights in each step": lambda minor: (
        "vLLM's" if minor["capabilities"]["weight_version_in_steps"] else "the worker's"
    ),
    "KV connectors": lambda minor: _codes(minor["capabilities"]["kv_connectors"]),
    "parsers of tool calls": lambda minor: str(len(minor["capabilities"]["tool_parsers"])),
    "parsers of reasoning": lambda minor: str(len(minor["capabilities"]["reasoning_parsers"])),
}
"""What is told of each minor."""


def _capabilities(minors: Mapping[str, Minor]) -> str:
    """Return the capabilities, and of lists what a minor has that the one before has not."""
    rows = [["asked", *(_when(minor["capabilities"]) for minor in minors.values())]]
    for name, shown in _SHOWN.items():
        values = [shown(minor) for minor in minors.values()]
        cells = values[:1] + [_more(before, now) for before, now in pairwise(values)]
        rows.append([name, *cells])
    return _table(["capability", *minors], rows)


def _more(before: str, now: str) -> str:
    """Return what a list has more than another; a value as it stands."""
    if before == now and now.startswith("`"):
        return "the same"
    older, newer = before.split(", "), now.split(", ")
    added = [each for each in newer if each not in older]
    return f"and {', '.join(added)}" if now.startswith("`") and set(older) < set(newer) else now


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _internals(minors: Mapping[str, Minor]) -> str:
    head = ["vLLM", "compared", "missing", "missing, and allowed for", "otherwise"]
    names = ("missing", "handled", "changed")
    rows = []
    for each in minors.values():
        found = each["internals"]
        rows.append([each["version"], _when(found), *(_codes(found[name]) for name in names)])
    return _table(head, rows)


def _fleet(fleet: Mapping[str, Any]) -> str:
    head = ["fleet", "checked", "streams", "at a time", "lost", "corrupted", "longest gap"]
    row = [" and ".join(fleet["minors"]), _when(fleet), str(fleet["streams"]), str(fleet["at_a_time"])]
    row += [str(fleet["lost"]), str(fleet["corrupted"]), f"{fleet['longest_gap_s']:.1f} s"]
    return _table(head, [row])
