"""Reads the metrics of workers, which may contain anything: only lines that are valid and within limits are relayed.

Its regular expressions are linear in the length of a line. Lines pass with the worker's label, and with values as this
process writes its own: Prometheus rejects a whole scrape for a number that only others can read, as `-NaN` or `1e999`.
"""

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import chain

from prometheus_client.utils import floatToGoString

_LONGEST_TEXT = 1 << 20
"""Characters. vLLM's text with eight engines has about 300 thousand, most of them in histograms."""
_LONGEST_LINE = 4096
_MOST_LINES = 2000
"""Of one worker: samples, good and bad. The first beyond them is rejected, and nothing after it is read."""
_MOST_LABELS = 64
"""vLLM's information about its cache has about 25."""
_LONGEST_HELP = 512
_RELAYED = frozenset({"gauge", "counter"})
"""Histograms have many series: Prometheus scrapes workers for them."""

_NAME = "vllm:[a-zA-Z0-9_:]{1,128}"
"""No family of the coordinator's own begins like this."""
_LABEL = r'[a-zA-Z_][a-zA-Z0-9_]{0,127}="(?:[^"\\]|\\[\\n"])*"'
_VALUE = r"[-+]?(?:[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?|Inf|NaN)"
_SAMPLE_LINE = re.compile(rf"({_NAME})(?:\{{((?:{_LABEL}(?:,|(?=\}})))*)\}})? ({_VALUE})")
_LABEL_NAMES = re.compile(r'([a-zA-Z0-9_]+)="(?:[^"\\]|\\[\\n"])*"')
_HELP_LINE = re.compile(rf"# HELP ({_NAME}) ((?:[^\\]|\\[\\n])*)")
_TYPE_LINE = re.compile(rf"# TYPE ({_NAME}) (gauge|counter)")


@dataclass(slots=True)
class _Announced:
    """A family as one worker announces it."""

    kind: str
    help: str
    samples: list[str] = field(default_factory=list)
    """Lines."""


class RelayedFamilies:
    """The gauges and counters of several workers, merged: one family each, whose samples name their worker."""

    def __init__(self) -> None:
        self._announced: dict[str, dict[str, _Announced]] = {}
        """By name and address."""

    def add(self, address: str, text: str) -> int:
        """Add the metrics of a worker; return how many of its lines were rejected."""
        if len(text) > _LONGEST_TEXT:
            return 1
        worker = _WorkerText(self, address)
        for line in text.split("\n"):
            worker.read(line)
            if worker.lines > _MOST_LINES:
                break
        return worker.rejected

    def declare(self, address: str, name: str, kind: str, help_text: str) -> list[str] | None:
        """Return the lines of a worker's family, to be added to; None if it has given it another type before."""
        announced = self._announced.setdefault(name, {}).setdefault(address, _Announced(kind, help_text))
        return announced.samples if announced.kind == kind else None

    def merged(self) -> tuple[list[str], Counter[str]]:
        """Return Prometheus' text format, and of whom how many families are left out, since most give another type."""
        lines: list[str] = []
        left_out: Counter[str] = Counter()
        for name, announced in self._announced.items():
            kind = _kind_of_most(name, announced.values())
            relayed = [each for each in announced.values() if each.kind == kind]
            left_out.update(address for address, each in announced.items() if each.kind != kind)
            if any(each.samples for each in relayed):
                lines += [f"# HELP {name} {relayed[0].help}", f"# TYPE {name} {kind}"]
                lines += chain.from_iterable(each.samples for each in relayed)
        return lines, left_out


def _kind_of_most(name: str, announced: Collection[_Announced]) -> str:
    """Return the type that most workers give a family; of as many for both, the one that its name has in vLLM."""
    more = 2 * sum(each.kind == "counter" for each in announced) - len(announced)
    return "counter" if more > 0 or (more == 0 and name.endswith("_total")) else "gauge"


class _WorkerText:
    """Reads the lines of one worker into the families of all."""

    def __init__(self, families: RelayedFamilies, address: str) -> None:
        self.lines = 0
        """Samples so far."""
        self.rejected = 0
        self._families = families
        self._address = address
        self._label = 'worker="' + address.replace("\\", r"\\").replace('"', r"\"") + '"'
        self._known: set[tuple[str, frozenset[str]]] = set()
        """Series so far: one that appears twice makes Prometheus reject a scrape."""
        self._help = ("", "")
        self._name = ""
        self._lines: list[str] | None = None
        """Those of the family that is being read; None for one that is not relayed."""

    def read(self, line: str) -> None:
        """Read the next line."""
        if line.startswith("# HELP "):
            self._lines = None
            found = _HELP_LINE.fullmatch(line) if _is_sane(line) else None
            self._help = (found[1], found[2][:_LONGEST_HELP].rstrip("\\")) if found else ("", "")
        elif line.startswith("# TYPE "):
            self._lines = self._declared(line)
        elif line and self._lines is not None:
            self.lines += 1
            sample = self._sample(line) if self.lines <= _MOST_LINES else None
            if sample is None:
                self.rejected += 1
            else:
                self._lines.append(sample)

    def _declared(self, line: str) -> list[str] | None:
        if not line.startswith("# TYPE vllm:") or line.rpartition(" ")[2] not in _RELAYED:
            return None
        found = _TYPE_LINE.fullmatch(line)
        if found is not None and found[1].endswith("_created"):
            return None
        lines = None
        if found is not None:
            self._name, kind = found.groups()
            help_text = self._help[1] if self._help[0] == self._name else ""
            lines = self._families.declare(self._address, self._name, kind, help_text)
        self.rejected += lines is None
        return lines

    def _sample(self, line: str) -> str | None:
        """Return a sample's line with its worker; None if it is invalid or known."""
        found = _SAMPLE_LINE.fullmatch(line) if _is_sane(line) else None
        if found is None or found[1] != self._name:
            return None
        labels = list(_LABEL_NAMES.finditer(found[2] or ""))
        names = {label[1] for label in labels}
        # To Prometheus, a label without a value is none.
        series = found[1], frozenset(label[0] for label in labels if not label[0].endswith('=""'))
        is_reserved = "worker" in names or any(name.startswith("__") for name in names)
        if is_reserved or series in self._known or len(names) != len(labels) or len(labels) > _MOST_LABELS:
            return None
        self._known.add(series)
        own = ",".join((self._label, *(label[0] for label in labels)))
        value = floatToGoString(float(found[3]))  # type: ignore[no-untyped-call]
        return f"{found[1]}{{{own}}} {value}"


def _is_sane(line: str) -> bool:
    return len(line) <= _LONGEST_LINE and line.isprintable()
