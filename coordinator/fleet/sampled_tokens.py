"""The log-probabilities of what workers sample for recorded sequences, as they arrive in frames.

They are taken from a frame's arrays before its listeners are called, which costs less than one more listener. The
tokens themselves are those of the sequence, which keeps them in any case.
"""

import math
from array import array
from dataclasses import dataclass, field

from tokenwire.v1 import inference_pb2 as pb

_STEPS = 32
"""Appended at once: a sequence's array has left the processor's caches since the last step."""


@dataclass(slots=True)
class ScoredRun:
    """Log-probabilities of what one worker sampled for a sequence."""

    start: int
    """How many tokens the sequence had before: 0 for a run that generates them again."""
    by_rows: bool
    """Whether log-probabilities come as rows, and not beside the tokens."""
    logprobs: "array[float]" = field(default_factory=lambda: array("f"))


class SampledTokens:
    """One sequence: its tokens, and the log-probabilities of all runs, the first one and those after lost workers."""

    __slots__ = ("_prompt_tokens", "_runs", "token_ids")

    def __init__(self, prompt_tokens: int) -> None:
        """prompt_tokens: the length of the prompt, as the client sent it."""
        self.token_ids = array("I")
        """Those that the client got, and after a stop string some more; the sequence appends them."""
        self._prompt_tokens = prompt_tokens
        self._runs: list[ScoredRun] = []

    def begin(self, prompt_tokens: int, by_rows: bool) -> ScoredRun:
        """Begin a run on a worker whose prompt has so many tokens: the tokens so far are the end of it, or repeated."""
        run = ScoredRun(prompt_tokens - self._prompt_tokens, by_rows)
        self._runs.append(run)
        return run

    def logprobs(self, count: int) -> "array[float] | None":
        """Return those of the first tokens, as many as the client got; None if some are unknown.

        Of a run that repeats tokens, only those after them count: those that were sent are of an earlier run.
        """
        logprobs = array("f")
        for run in self._runs:
            if run.start:
                del logprobs[run.start :]
            logprobs.extend([math.nan] * (run.start - len(logprobs)))
            logprobs += run.logprobs[len(logprobs) - run.start :]
        del logprobs[count:]
        # One NaN makes the sum NaN.
        return None if len(logprobs) < count or math.isnan(sum(logprobs)) else logprobs


class SlotRuns:
    """The runs of a session's slots. Steps of the same slots are kept as they came, and taken apart together."""

    def __init__(self) -> None:
        self.recorded: dict[int, ScoredRun] = {}
        """By slot; if it is empty, frames need not be read. Those of the last steps are still to be taken."""
        self._slots: list[int] = []
        self._steps: list[list[float]] = []
        """The last steps, each with a log-probability for each of these slots."""

    def begin(self, slot: int, run: ScoredRun) -> None:
        """Record a slot from now on."""
        self.take_steps()
        self.recorded[slot] = run

    def end(self, slot: int) -> None:
        """Record a slot no longer: its run is complete."""
        if slot in self.recorded:
            self.take_steps()
            del self.recorded[slot]

    def on_frame(self, frame: pb.StepFrame) -> None:
        """Take the log-probabilities of recorded slots from a frame whose arrays were checked."""
        if frame.sampled_logprobs:
            slots, counts = frame.slots[:], frame.counts
            if counts:
                slots = [slot for slot, count in zip(slots, counts, strict=True) for _ in range(count)]
            if slots != self._slots or len(self._steps) == _STEPS:
                self.take_steps()
                self._slots = slots
            self._steps.append(frame.sampled_logprobs[:])
            if counts:
                self.take_steps()
        for scores in frame.logprobs:
            run = self.recorded.get(scores.slot)
            if run is not None and run.by_rows:
                run.logprobs.extend(scores.rows.logprobs[:: scores.rows.width])

    def take_steps(self) -> None:
        """Append what was kept to the runs. A slot that a step has several times has them one after the other."""
        steps, self._steps = self._steps, []
        if not steps:
            return
        runs = [None if run is None or run.by_rows else run.logprobs for run in map(self.recorded.get, self._slots)]
        if len(steps) == 1:
            for logprobs, logprob in zip(runs, steps[0], strict=True):
                if logprobs is not None:
                    logprobs.append(logprob)
            return
        for logprobs, of_slot in zip(runs, zip(*steps, strict=True), strict=True):
            if logprobs is not None:
                logprobs.extend(of_slot)
