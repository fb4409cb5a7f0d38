"""Tells an engine that hangs from one that is slow: how long it has made no step, and how much of that is in order."""

import time
from collections.abc import Callable, Iterable

from tokenwire.worker.engine import Sequence, Step

_NEW_STEPS = 32
"""An engine compiles and allocates in its first steps."""
_NEW_ALLOWANCE_S = 60.0
_WINDOW_STEPS = 512
_LONGEST_FACTOR = 3.0
_PREFILL_S_PER_TOKEN = 0.002
"""Slower than any GPU, and than a small model on a CPU."""
_PREFILL_MOST_TOKENS = 8192
"""A step computes no more: vLLM cuts prompts into chunks."""


class StallDetector:
    """Watches the sequences of an engine, and its steps."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.steps = 0
        """Steps that the engine has made."""
        self._clock = clock
        self._open: dict[Sequence, int] = {}
        """Sequences in the engine, each with the prompt tokens that are not known to be computed."""
        self._pending_tokens = 0
        self._moved_at = clock()
        self._longest_s = 0.0
        self._longest_before_s = 0.0

    @property
    def allowance_s(self) -> float:
        """How long the present step may take for reasons that are known."""
        if self.steps < _NEW_STEPS:
            return _NEW_ALLOWANCE_S
        prefill = min(self._pending_tokens, _PREFILL_MOST_TOKENS) * _PREFILL_S_PER_TOKEN
        return prefill + _LONGEST_FACTOR * max(self._longest_s, self._longest_before_s)

    @property
    def stalled_s(self) -> float:
        """How long the engine has had sequences and made no step."""
        return self._clock() - self._moved_at if self._open else 0.0

    def submitted(self, sequences: Iterable[Sequence], prompt_tokens: int) -> None:
        """Hear of sequences that the engine took."""
        if not self._open:
            self._moved_at = self._clock()
        for sequence in sequences:
            self._open[sequence] = prompt_tokens
            self._pending_tokens += prompt_tokens

    def stepped(self, step: Step) -> None:
        """Hear of a step. One that only tells of aborted sequences is none of the engine's."""
        if step.sequences or not step.finishes:
            self._count()
        for sequence, _ in step.prefills:
            if sequence in self._open:
                self._pending_tokens -= self._open[sequence]
                self._open[sequence] = 0
        for sequence, _ in step.finishes:
            self._pending_tokens -= self._open.pop(sequence, 0)

    def allow(self) -> None:
        """Begin to count anew: the engine is paused, or has something else to do."""
        self._moved_at = self._clock()

    def _count(self) -> None:
        now = self._clock()
        if self._open:
            self._longest_s = max(self._longest_s, now - self._moved_at)
        self._moved_at = now
        self.steps += 1
        if self.steps % _WINDOW_STEPS == 0:
            self._longest_before_s, self._longest_s = self._longest_s, 0.0
