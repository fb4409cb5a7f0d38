"""Distinguishes a hung engine from a slow one: the time since its last step, and the expected time of a step."""

import time
from collections.abc import Callable, Iterable

from tokenwire.worker.engine.interface import EngineSequence, Step

_NEW_STEPS = 32
"""Steps in which an engine may still compile and allocate."""
_NEW_ALLOWANCE_S = 60.0
_WINDOW_STEPS = 512
_LONGEST_FACTOR = 3.0
_PREFILL_S_PER_TOKEN = 0.002
"""Slower than any GPU, and than a small model on a CPU."""
_PREFILL_MOST_TOKENS = 8192
"""A step computes no more: vLLM splits prompts into chunks."""


class StallDetector:
    """Measures the time since an engine's last step while it has sequences."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.steps = 0
        """Number of steps so far."""
        self._clock = clock
        self._open: dict[EngineSequence, int] = {}
        """Sequences in the engine, each with its prompt tokens that may still have to be computed."""
        self._pending_tokens = 0
        self._last_step_at = clock()
        self._longest_s = 0.0
        self._longest_before_s = 0.0

    @property
    def allowance_s(self) -> float:
        """Seconds that the current step may take for known reasons."""
        if self.steps < _NEW_STEPS:
            return _NEW_ALLOWANCE_S
        prefill = min(self._pending_tokens, _PREFILL_MOST_TOKENS) * _PREFILL_S_PER_TOKEN
        return prefill + _LONGEST_FACTOR * max(self._longest_s, self._longest_before_s)

    @property
    def stalled_s(self) -> float:
        """Seconds for which the engine has had sequences and made no step."""
        return self._clock() - self._last_step_at if self._open else 0.0

    def on_submitted(self, sequences: Iterable[EngineSequence], prompt_tokens: int) -> None:
        """Record sequences that the engine accepted."""
        if not self._open:
            self._last_step_at = self._clock()
        for sequence in sequences:
            self._open[sequence] = prompt_tokens
            self._pending_tokens += prompt_tokens

    def on_step(self, step: Step) -> None:
        """Record a step. One that only reports aborted sequences was not made by the engine."""
        if step.sequences or not step.finishes:
            self._count()
        for sequence, _ in step.prefills:
            if sequence in self._open:
                self._pending_tokens -= self._open[sequence]
                self._open[sequence] = 0
        for sequence, _ in step.finishes:
            self._pending_tokens -= self._open.pop(sequence, 0)

    def reset(self) -> None:
        """Restart the measurement: the engine is paused or busy with something else."""
        self._last_step_at = self._clock()

    def _count(self) -> None:
        now = self._clock()
        if self._open:
            self._longest_s = max(self._longest_s, now - self._last_step_at)
        self._last_step_at = now
        self.steps += 1
        if self.steps % _WINDOW_STEPS == 0:
            self._longest_before_s, self._longest_s = self._longest_s, 0.0
