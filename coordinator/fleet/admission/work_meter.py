"""Reads what the sequences of a request do at one worker, and what that counts of their tenant's share.

Nothing stands in the way of their tokens: what they have is read when it matters, which is while somebody waits.
"""

from collections.abc import Sequence
from typing import Protocol

REPLY_TOKENS = 256
"""The length of a reply is unknown: its tokens are counted in advance, so many at a time."""
_CACHED_COST = 0.1
"""Of a prompt token that a worker had in its cache."""


class MeteredSequence(Protocol):
    """What is read of a sequence; see SlotListener."""

    @property
    def gained(self) -> int:
        """Tokens from its worker."""

    @property
    def cached_tokens(self) -> int:
        """Tokens of the prompt that its worker had in its cache; 0 until that is known."""


class MeteredPart(Protocol):
    """The sequences that were sent to one worker together."""

    def running(self) -> Sequence[int]:
        """Return the places of those that still run there."""


class WorkMeter:
    """The work of such sequences, in tokens."""

    __slots__ = ("_counted", "_part", "_prompt_tokens", "_sequences", "ahead")

    def __init__(self, part: MeteredPart, sequences: Sequence[MeteredSequence], prompt_tokens: int) -> None:
        """`prompt_tokens`: what was counted of the prompt, all of it, besides the first tokens of each reply."""
        self._part = part
        self._sequences = sequences
        self._prompt_tokens = prompt_tokens
        """Until it is known how many of them its worker had in its cache."""
        self.ahead = prompt_tokens + REPLY_TOKENS * len(sequences)
        """What was counted by the last call and is not done: some of it may be taken back."""
        self._counted = dict.fromkeys(range(len(sequences)), REPLY_TOKENS)
        """Tokens of the replies, by place, of those that ran at the last call."""

    def read(self) -> float:
        """Return how much more work it is than at the last call; less than 0 where less was needed than assumed."""
        work, ahead = 0.0, 0
        if not self._counted:
            return work
        if self._prompt_tokens:
            first = self._sequences[0]
            work = (_CACHED_COST - 1) * first.cached_tokens
            if first.cached_tokens or first.gained:
                self._prompt_tokens = 0
        running = self._part.running()
        for place, counted in [*self._counted.items()]:
            tokens = gained = self._sequences[place].gained
            if place in running:
                tokens = self._counted[place] = max(REPLY_TOKENS, -(-gained // REPLY_TOKENS) * REPLY_TOKENS)
                ahead += tokens - gained
            else:
                del self._counted[place]  # it has ended, or goes on elsewhere: only what it got here counts
            work += tokens - counted
        self.ahead = ahead + self._prompt_tokens if self._counted else 0
        return work

    def restart(self) -> int:
        """Leave what was done so far, and return how many sequences run: each counts its next tokens in advance."""
        self.read()
        self._prompt_tokens = 0
        return len(self._counted)
