"""Renders results as Markdown: tables of verdicts and explanations, and lists of differences."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from tests.conformance.parity.explained import EXPLANATIONS
from tests.conformance.parity.run import DIFFERENT, EQUAL, EXPLAINED, UNSTABLE, ParityOutcome

_VERDICTS = (EQUAL, EXPLAINED, DIFFERENT, UNSTABLE)
_SHOWN = 300


def table(outcomes: Sequence[ParityOutcome]) -> str:
    """Count verdicts by route and form, as a Markdown table."""
    rows: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for outcome in outcomes:
        form = "streamed" if outcome.request.streamed else "full"
        answer = "accepted" if outcome.theirs.succeeded else "rejected"
        rows[(outcome.request.route, f"{form}, {answer}")][outcome.verdict] += 1
    lines = ["| route | form | cases | " + " | ".join(_VERDICTS) + " |", "|---|---|" + "---:|" * (1 + len(_VERDICTS))]
    total: Counter[str] = Counter()
    for (route, form), counts in sorted(rows.items()):
        lines.append(_row(route, form, counts))
        total += counts
    return "\n".join([*lines, _row("all", "", total)])


def _row(route: str, form: str, counts: Counter[str]) -> str:
    numbers = [sum(counts.values()), *(counts[verdict] for verdict in _VERDICTS)]
    return f"| {route} | {form} | " + " | ".join(map(str, numbers)) + " |"


def reasons(outcomes: Iterable[ParityOutcome]) -> str:
    """Count the requests to which each explanation applied, as a Markdown table."""
    counts: Counter[str] = Counter()
    for outcome in outcomes:
        counts.update({explanation.name for explanation, _ in outcome.explained})
    lines = ["| explained difference | cases | why |", "|---|---:|---|"]
    lines += [f"| {each.name} | {counts[each.name]} | {each.reason} |" for each in EXPLANATIONS]
    return "\n".join(lines)


def faults(outcomes: Iterable[ParityOutcome], examples: int = 3) -> str:
    """List differences by cause, the most frequent first."""
    causes: dict[str, list[ParityOutcome]] = defaultdict(list)
    for outcome in outcomes:
        for name in causes_of(outcome):
            causes[name].append(outcome)
    parts = []
    for name, group in sorted(causes.items(), key=lambda item: -len(item[1])):
        parts.append(f"## {len(group)} × {name}\n")
        parts += [describe(outcome) for outcome in group[:examples]]
        if len(group) > examples:
            names = ", ".join(outcome.request.name for outcome in group[examples : examples + 12])
            parts.append(f"also: {names}\n")
    return "\n".join(parts)


def causes_of(outcome: ParityOutcome) -> list[str]:
    """Return the causes of an outcome's differences, in a form shared by outcomes with the same cause."""
    names: dict[str, None] = {}
    for difference in outcome.differences:
        path = re.sub(r"\[\d+\]", "[n]", re.sub(r"(?<=choices)\.\d+", "[n]", difference.path))
        path = re.sub(r"(?<=prompt_logprobs\[n\])\..*|(?<=top_logprobs\[n\])\..*", "…", path)
        names[f"{path}: ours {_general(difference.ours)}, theirs {_general(difference.theirs)}"] = None
    return list(names)[:6]


def _general(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "a number"
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return re.sub(r"\d+(\.\d+)?(e[-+]\d+)?", "#", shown)[:120].replace("\n", " ")


def describe(outcome: ParityOutcome, limit: int = 5) -> str:
    """Describe one request and its differences."""
    body = outcome.request.body
    shown = repr(body) if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False)
    headers = f" {dict(outcome.request.headers)}" if outcome.request.headers else ""
    lines = [f"* `{outcome.request.name}` {outcome.request.path}{headers}", f"  `{shown[:900]}`"]
    for difference in outcome.differences[:limit]:
        ours, theirs = repr(difference.ours)[:_SHOWN], repr(difference.theirs)[:_SHOWN]
        lines.append(f"  - {difference.path}\n    - ours: {ours}\n    - theirs: {theirs}")
    if len(outcome.differences) > limit:
        lines.append(f"  - and {len(outcome.differences) - limit} more places")
    return "\n".join(lines) + "\n"
