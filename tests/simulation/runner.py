"""Simulates the runs of many seeds, in one process or several."""

# isort: skip_file
from tests.simulation import chance

import gc
import multiprocessing
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from tests.simulation.run import Result, run_script
from tests.simulation.script import generate_script

_CHUNK = 10
"""Seeds that a process runs before it reports."""


@dataclass(slots=True)
class Campaign:
    """What came of all runs so far."""

    runs: int = 0
    failed: int = 0
    virtual_s: float = 0.0
    callbacks: int = 0
    endings: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)
    """How often each event happened."""
    reached_in: Counter[str] = field(default_factory=Counter)
    """In how many runs it happened."""
    began: float = field(default_factory=chance.REAL_CLOCKS["monotonic"])

    @property
    def seconds(self) -> float:
        """Real seconds so far."""
        return chance.REAL_CLOCKS["monotonic"]() - self.began

    def add(self, result: Result) -> None:
        """Count a result."""
        self.runs += 1
        self.failed += bool(result.violations)
        self.virtual_s += result.virtual_s
        self.callbacks += result.callbacks
        self.endings.update(result.endings)
        self.reached.update(result.reached)
        self.reached_in.update(name for name, count in result.reached.items() if count)

    def show_progress(self, total: int) -> None:
        """Show a line of progress on a terminal."""
        if sys.stderr.isatty():
            rate = self.runs / self.seconds
            left = (total - self.runs) / rate
            line = f"{self.runs}/{total} runs, {rate:.2f}/s, {self.failed} failed, {left / 60:.0f} min left"
            sys.stderr.write(f"\r\x1b[K{line}")
            sys.stderr.flush()


def run_seeds(seeds: Sequence[int], processes: int) -> Iterator[Result]:
    """Yield the result of each seed, in order."""
    if processes == 1:
        gc.freeze()
        yield from (run_script(generate_script(seed)) for seed in seeds)
        return
    chunks = [seeds[start : start + _CHUNK] for start in range(0, len(seeds), _CHUNK)]
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), initializer=gc.freeze) as executor:
        try:
            for results in executor.map(_run_chunk, chunks):
                yield from results
        finally:
            executor.shutdown(cancel_futures=True)


def _run_chunk(seeds: Sequence[int]) -> list[Result]:
    return [run_script(generate_script(seed)) for seed in seeds]
