"""The output of a choice that a stream has yet to send."""

from collections.abc import Sequence

from tokenwire.coordinator.text.logprobs import ScoredPosition
from tokenwire.coordinator.types import Finish

# Approximate sizes of a step, a token and a scored token in Python.
_STEP_BYTES, _TOKEN_BYTES, _SCORED_BYTES = 100, 40, 250


def size_bytes(text: str, token_ids: Sequence[int], logprobs: list[ScoredPosition] | None) -> int:
    """Return the approximate memory of a step."""
    size = _STEP_BYTES + len(text) + _TOKEN_BYTES * len(token_ids)
    return size if logprobs is None else size + _SCORED_BYTES * sum(map(len, logprobs))


class UnsentOutput:
    """One step, or several merged, and those that follow."""

    __slots__ = ("finish", "following", "held_bytes", "logprobs", "texts", "token_ids")

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.token_ids: list[int] = []
        self.finish: Finish | None = None
        self.logprobs: list[ScoredPosition] | None = None
        self.following: list[UnsentOutput] = []
        self.held_bytes = 0
        """What of all this is counted as held for a slow reader."""

    def follow(self) -> "UnsentOutput":
        """Append a step that is not merged with earlier ones."""
        self.following.append(UnsentOutput())
        return self.following[-1]

    def steps(self) -> "list[UnsentOutput]":
        """Return all steps in order."""
        return [self, *self.following]

    def add_logprobs(self, logprobs: list[ScoredPosition]) -> None:
        """Append the log-probabilities of a merged step."""
        if self.logprobs is None:
            self.logprobs = []
        self.logprobs += logprobs
