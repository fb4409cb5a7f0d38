"""CPU time of the engine's processes: what tells one that computes from one that waits."""

import os
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

_PROC = Path("/proc")


class StallCpu:
    """Measures the CPU time that is spent while the engine makes no step."""

    def __init__(self, used_s: "Callable[[], float | None] | None" = None) -> None:
        self._used_s = used_s or children_cpu_s
        self._before_s: float | None = None

    def spent_s(self, stalled_s: float) -> float | None:
        """Return the CPU time of the present stall, None where it is not known; to be asked at every heartbeat."""
        used_s = self._used_s() if stalled_s else None
        if used_s is None:
            self._before_s = None
            return None
        if self._before_s is None:
            self._before_s = used_s
        return max(0.0, used_s - self._before_s)


def children_cpu_s() -> float | None:
    """Add up what the processes below this one have used, ended ones included; None where nobody tells."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    ticks: dict[int, int] = {}
    for entry in _PROC.glob("[0-9]*/stat"):
        try:
            # Behind the name, which may hold anything: state, parent, ..., utime, stime, and those of ended children.
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        pid = int(entry.parent.name)
        children[int(fields[1])].append(pid)
        ticks[pid] = sum(map(int, fields[11:15]))
    below = list(children[os.getpid()])
    for pid in below:
        below += children[pid]
    return sum(ticks[pid] for pid in below) / os.sysconf("SC_CLK_TCK") if below else None
