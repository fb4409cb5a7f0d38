"""What became of each mutant: kept in a file between runs, and counted in a table."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from tests.mutation.mutants import Mutant

By = Literal["tests", "simulation"]
_HEAD = (
    "| module | mutants | killed by tests | by simulation | equivalent | survived | killed |\n"
    "|---|---|---|---|---|---|---|\n"
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a mutant was judged."""

    change: str
    """What the mutant changes: a name alone is of another mutant once its function is edited."""
    killed_by: By | None = None
    how: str = ""
    """The violation that simulation found."""


class Verdicts:
    """The verdicts of a folder, written as they come."""

    def __init__(self, path: Path) -> None:
        self._path = path
        found = json.loads(path.read_text()) if path.exists() else {}
        self._by_name = {name: Verdict(**each) for name, each in found.items()}

    def of(self, mutant: Mutant) -> Verdict | None:
        """Return the verdict on a mutant; None: it was not judged."""
        verdict = self._by_name.get(mutant.name)
        return verdict if verdict is not None and verdict.change == str(mutant) else None

    def is_killed(self, mutant: Mutant) -> bool:
        """Return whether a mutant was judged, and killed."""
        verdict = self.of(mutant)
        return verdict is not None and verdict.killed_by is not None

    def add(self, mutant: Mutant, killed_by: By | None, how: str = "") -> None:
        """Keep a verdict."""
        self._by_name[mutant.name] = Verdict(str(mutant), killed_by, how)
        self._path.write_text(json.dumps({name: asdict(each) for name, each in self._by_name.items()}, indent=1))


def verdict_table(mutants: Iterable[Mutant], verdicts: Verdicts, equivalent: Mapping[str, str]) -> str:
    """Return what became of these mutants, for each module and for all."""
    counts: dict[str, Counter[str]] = {}
    for mutant in mutants:
        verdict = verdicts.of(mutant)
        if verdict is not None:
            what = verdict.killed_by or ("equivalent" if str(mutant) in equivalent else "survived")
            counts.setdefault(mutant.path, Counter())[what] += 1
    rows = [_row(f"`{path}`", count) for path, count in sorted(counts.items())]
    return _HEAD + "".join([*rows, _row("**all**", sum(counts.values(), Counter()))])


def _row(name: str, count: Counter[str]) -> str:
    """Return a line; equivalent mutants are left out of the share."""
    killed = count["tests"] + count["simulation"]
    share = 100 * killed // (killed + count["survived"]) if killed + count["survived"] else 100
    cells = (count.total(), count["tests"], count["simulation"], count["equivalent"], count["survived"])
    return f"| {name} | {' | '.join(map(str, cells))} | {share}% |\n"
