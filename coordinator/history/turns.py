"""What was said, in ids: each turn holds its own and points to the one that it continues."""

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

Ending = Literal["token", "string", "cut", "unknown"]
"""How a reply ended: by a token that the model chose, at a stop string, or before its end (length, abort)."""


@dataclass(frozen=True, slots=True)
class Reasoning:
    """The reasoning of one assistant message."""

    position: int
    """Of the message in its conversation."""
    digest: bytes
    ours: bool
    """Whether it was generated here: then clients may leave it out."""


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """The end of a prompt, or a completion."""

    token_ids: "array[int]"
    """Those that come behind the parent's; unsigned 32 bits each."""
    parent: "Turn | None" = None
    ending: Ending = "cut"
    reasoning: tuple[Reasoning, ...] = ()

    def chain(self) -> "Iterator[Turn]":
        """Yield this turn and all before it, the first one last."""
        turn: Turn | None = self
        while turn is not None:
            yield turn
            turn = turn.parent

    def all_ids(self) -> "array[int]":
        """Return the ids from the beginning of the conversation."""
        joined = array("I")
        for turn in reversed(list(self.chain())):
            joined += turn.token_ids
        return joined

    def agrees(self, given: Mapping[int, bytes], position: int) -> bool:
        """Tell whether the reasoning in a request's messages, up to a position, is what was said.

        given: digests by the position of their message. What was generated here may be missing, nothing may differ.
        """
        confirmed = 0
        for turn in self.chain():
            for reasoning in turn.reasoning:
                digest = given.get(reasoning.position)
                if digest is None and reasoning.ours:
                    continue
                if digest != reasoning.digest:
                    return False
                confirmed += 1
        return confirmed == sum(place <= position for place in given)
