"""CPU time of the engine's processes during a stall: distinguishes an engine that computes from one that waits."""

import os
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

_PROC = Path("/proc")


class StallCpuTime:
    """CPU time that the engine uses during a stall."""

    def __init__(self, used_s: "Callable[[], float | None] | None" = None) -> None:
        self._used_s = used_s or children_cpu_s
        self._before_s: float | None = None

    def spent_s(self, stalled_s: float) -> float | None:
        """Return the CPU time of the current stall, or None if unknown; call it at every heartbeat."""
        used_s = self._used_s() if stalled_s else None
        if used_s is None:
            self._before_s = None
            return None
        if self._before_s is None:
            self._before_s = used_s
        return max(0.0, used_s - self._before_s)


def children_cpu_s() -> float | None:
    """Return the CPU time of all descendant processes, ended ones included; None where /proc has none."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    ticks: dict[int, int] = {}
    for entry in _PROC.glob("[0-9]*/stat"):
        try:
            # After the name, which may hold any character: state, parent, ..., utime, stime, cutime, cstime.
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # the process has just ended
        pid = int(entry.parent.name)
        children[int(fields[1])].append(pid)
        ticks[pid] = sum(map(int, fields[11:15]))
    descendants = list(children[os.getpid()])
    for pid in descendants:
        descendants += children[pid]
    return sum(ticks[pid] for pid in descendants) / os.sysconf("SC_CLK_TCK") if descendants else None
