"""The tokens that workers sample for recorded sequences, with their log-probabilities, as they arrive in frames.

They are taken from a frame's arrays before its listeners are called: two appends cost less than one more listener.
"""

import math
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tokenwire.v1 import inference_pb2 as pb


@dataclass(slots=True)
class SampledRun:
    """What one worker sampled for a sequence."""

    start: int
    """How many tokens the sequence had before: 0 for a run that generates them again."""
    by_rows: bool
    """Whether log-probabilities come as rows, and not beside the tokens."""
    token_ids: "array[int]" = field(default_factory=lambda: array("I"))
    logprobs: "array[float]" = field(default_factory=lambda: array("f"))


class SampledTokens:
    """All runs of one sequence: the first one, and those after the loss of a worker."""

    def __init__(self, prompt_tokens: int) -> None:
        """prompt_tokens: the length of the prompt, as the client sent it."""
        self._prompt_tokens = prompt_tokens
        self._runs: list[SampledRun] = []

    def begin(self, prompt_tokens: int, by_rows: bool) -> SampledRun:
        """Begin a run on a worker whose prompt has so many tokens: the tokens so far are the end of it, or repeated."""
        run = SampledRun(prompt_tokens - self._prompt_tokens, by_rows)
        self._runs.append(run)
        return run

    def first(self, count: int) -> "tuple[array[int], array[float] | None]":
        """Return the first tokens, as many as the client got, and their log-probabilities; None if some are unknown.

        Of a run that repeats tokens, only those after them count: those that were sent are of an earlier run.
        """
        token_ids, logprobs = array("I"), array("f")
        for run in self._runs:
            if run.start:
                del token_ids[run.start :], logprobs[run.start :]
            known = len(token_ids) - run.start
            missing = len(run.token_ids) - len(run.logprobs)
            token_ids += run.token_ids[known:]
            logprobs += run.logprobs[known : len(run.token_ids)]
            if missing > 0:
                logprobs.extend([math.nan] * min(missing, len(run.token_ids) - known))
        del token_ids[count:], logprobs[count:]
        return token_ids, None if math.isnan(sum(logprobs)) else logprobs  # one NaN makes the sum NaN


def _ignore(_: Any) -> None:
    """Take the tokens of a slot that is not recorded."""


class SlotRuns:
    """The runs of a session's slots. A frame's tokens are appended by calls that are found by slot."""

    def __init__(self) -> None:
        self.recorded: dict[int, SampledRun] = {}
        """By slot; if it is empty, frames need not be read."""
        self._take_id: list[Callable[[int], None]] = []
        self._take_logprob: list[Callable[[float], None]] = []

    def begin(self, slot: int, run: SampledRun) -> None:
        """Record a slot from now on."""
        missing = slot + 1 - len(self._take_id)
        self._take_id += [_ignore] * missing
        self._take_logprob += [_ignore] * missing
        self.recorded[slot] = run
        self._take_id[slot] = run.token_ids.append
        self._take_logprob[slot] = _ignore if run.by_rows else run.logprobs.append

    def end(self, slot: int) -> None:
        """Record a slot no longer."""
        if self.recorded.pop(slot, None) is not None:
            self._take_id[slot] = self._take_logprob[slot] = _ignore

    def on_frame(self, frame: pb.StepFrame) -> None:
        """Take the tokens of recorded slots from a frame whose arrays were checked."""
        slots, counts = frame.slots[:], frame.counts
        if counts:
            slots = [slot for slot, count in zip(slots, counts, strict=True) for _ in range(count)]
        missing = max(slots, default=0) + 1 - len(self._take_id)
        if missing > 0:
            self._take_id += [_ignore] * missing
            self._take_logprob += [_ignore] * missing
        take_id, take_logprob = self._take_id, self._take_logprob
        if frame.sampled_logprobs:
            for slot, token_id, logprob in zip(slots, frame.token_ids[:], frame.sampled_logprobs[:], strict=True):
                take_id[slot](token_id)
                take_logprob[slot](logprob)
        else:
            for slot, token_id in zip(slots, frame.token_ids[:], strict=True):
                take_id[slot](token_id)
        for scores in frame.logprobs:
            run = self.recorded.get(scores.slot)
            if run is not None and run.by_rows:
                run.logprobs.extend(scores.rows.logprobs[:: scores.rows.width])
