"""The output of a choice that a stream has yet to send."""

from collections.abc import Sequence

from tokenwire.coordinator.text.logprobs import ScoredPosition
from tokenwire.coordinator.types import Finish

# Approximate sizes of a step, a token and a scored token in Python.
_STEP_BYTES, _TOKEN_BYTES, _SCORED_BYTES = 100, 40, 250

_MOST_SCORED = 512
"""Log-probabilities of merged steps, which take some milliseconds to render."""


def size_bytes(text: str, token_ids: Sequence[int], logprobs: list[ScoredPosition] | None) -> int:
    """Return the approximate memory of a step."""
    size = _STEP_BYTES + len(text) + _TOKEN_BYTES * len(token_ids)
    return size if logprobs is None else size + _SCORED_BYTES * sum(map(len, logprobs))


class UnsentOutput:
    """One step, or several merged, and those that follow."""

    __slots__ = ("_scored", "finish", "following", "held_bytes", "logprobs", "texts", "token_ids")

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.token_ids: list[int] = []
        self.finish: Finish | None = None
        self.logprobs: list[ScoredPosition] | None = None
        self.following: list[UnsentOutput] = []
        self.held_bytes = 0
        """What of this step is counted as held for a slow reader."""
        self._scored = 0

    def follow(self) -> "UnsentOutput":
        """Append a step that is not merged with earlier ones."""
        self.following.append(UnsentOutput())
        return self.following[-1]

    def last(self, merges: bool) -> "UnsentOutput":
        """Return the step to which the next one is added: one of its own if it is not merged, or the last is large."""
        last = self.following[-1] if self.following else self
        return last if merges and last._scored < _MOST_SCORED else self.follow()

    def without(self, sent: int) -> "UnsentOutput":
        """Return what is left after the first steps."""
        first, *following = self.steps()[sent:]
        first.following = following
        return first

    def steps(self) -> "list[UnsentOutput]":
        """Return all steps in order."""
        return [self, *self.following]

    def add_logprobs(self, logprobs: list[ScoredPosition]) -> None:
        """Append the log-probabilities of a merged step."""
        if self.logprobs is None:
            self.logprobs = []
        self.logprobs += logprobs
        self._scored += sum(map(len, logprobs))
