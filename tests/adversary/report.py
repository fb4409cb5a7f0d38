"""What measurements look like: a line each, the worst ones as a table, and JSON."""

from collections.abc import Iterable, Sequence
from typing import Any

from tests.adversary.runner import Measurement

WORST = 20


def line_of(label: str, measurement: Measurement) -> str:
    """Return a line of one attack."""
    what = "died " if measurement.died else "broke " if measurement.broke else "refused " if measurement.refused else ""
    statuses = ",".join(str(status or "-") for status in measurement.statuses)
    verdict = "VIOLATES" if measurement.violates else "ok"
    return (
        f"{label:>18} {verdict:8} {what}{statuses:7} {measurement.seconds:5.1f} s  gap {measurement.blocked_s:5.2f} s "
        f"({measurement.silence_s:.2f})  cpu {measurement.cpu_s:5.1f} s  +{measurement.memory_mb:4.0f} MB  "
        f"{measurement.attack.name[:160]}\n"
    )


def worst(measurements: Iterable[tuple[str, Measurement]]) -> list[tuple[str, Measurement]]:
    """Return the worst, first those that violate."""
    return sorted(measurements, key=lambda each: each[1].excess, reverse=True)[:WORST]


def table_of(measurements: Sequence[tuple[str, Measurement]]) -> str:
    """Return the worst as a table."""
    head = "| attack | status | gap | CPU | memory | where |\n|---|---|---|---|---|---|\n"
    rows = (
        f"| {label}: {each.attack.name[:160]} | {', '.join(map(str, each.statuses))} | {each.blocked_s:.2f} s | "
        f"{each.cpu_s:.1f} s | {each.memory_mb:.0f} MB | {'; '.join(list(each.places)[:3])} |\n"
        for label, each in worst(measurements)
    )
    return head + "".join(rows)


def summary_of(measurements: Sequence[tuple[str, Measurement]]) -> str:
    """Return one sentence about all."""
    violations = sum(each.violates for _, each in measurements)
    served = sum(200 in each.statuses for _, each in measurements)
    silence = max((each.blocked_s for _, each in measurements), default=0.0)
    memory = max((each.memory_mb for _, each in measurements), default=0.0)
    return (
        f"{len(measurements)} attacks, {served} of them served, {violations} violations; the longest gap was "
        f"{silence:.2f} s, and the most memory {memory:.0f} MB.\n"
    )


def record_of(label: str, measurement: Measurement) -> dict[str, Any]:
    """Return what a JSON file has of a measurement."""
    names = (
        "statuses",
        "beginning",
        "seconds",
        "silence_s",
        "blocked_s",
        "cpu_s",
        "memory_mb",
        "died",
        "broke",
        "refused",
        "places",
    )
    figures = {name: getattr(measurement, name) for name in names}
    return {"attack": label, "name": measurement.attack.name, "violates": measurement.violates, **figures}
