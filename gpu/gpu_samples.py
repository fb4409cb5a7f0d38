"""What nvidia-smi sees of the GPU while something runs."""

import csv
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_FIELDS = {
    "utilization.gpu": "gpu_busy_percent",
    "power.draw": "power_w",
    "clocks.sm": "clock_mhz",
    "memory.used": "memory_mib",
}
_INTERVAL_MS = 200


@contextmanager
def sampled(path: Path) -> Iterator[dict[str, float]]:
    """Sample within a with block, into a file; the dictionary has the means afterwards, nothing without a GPU.

    Busy is the share of time in which any kernel ran, which includes waiting for memory.
    """
    means: dict[str, float] = {}
    if shutil.which("nvidia-smi") is None:
        yield means
        return
    query = ["nvidia-smi", f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"]
    with path.open("wb") as output:
        process = subprocess.Popen([*query, "-lms", str(_INTERVAL_MS)], stdout=output, stderr=subprocess.STDOUT)
        try:
            yield means
        finally:
            process.terminate()
            process.wait()
    means |= means_of(path.read_text())


def means_of(table: str) -> dict[str, float]:
    """Return the mean of each column; lines that are cut off do not count."""
    rows = []
    for row in csv.reader(table.splitlines()):
        with suppress(ValueError):
            rows.append([float(cell) for cell in row])
    rows = [row for row in rows if len(row) == len(_FIELDS)]
    if not rows:
        return {}
    columns = zip(_FIELDS.values(), zip(*rows, strict=True), strict=True)
    return {name: round(statistics.fmean(column), 1) for name, column in columns}


def wait_memory_free(used_mib: float = 2000, timeout_s: float = 30) -> None:
    """Wait until the GPU's memory is free: a driver takes a moment to take it back from an engine that has ended."""
    deadline = time.monotonic() + timeout_s
    while shutil.which("nvidia-smi") and time.monotonic() < deadline:
        query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        found = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
        with suppress(ValueError):
            if float(found.splitlines()[0] if found else "0") < used_mib:
                return
        time.sleep(0.5)
