"""What was said, in ids: each turn holds its own and points to the one that it continues."""

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

Ending = Literal["token", "stop", "cut", "unknown"]
"""How a reply ended: by a token that the model ends its replies with, at a stop string or token of the request's, or
before its end (length, abort)."""


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

    def message_ids(self) -> "array[int]":
        """Return the ids of a completion's message, with the end of the prompt in front of it.

        A message that was cut and continued has several completions, and nothing between them.
        """
        ids = self.token_ids
        prompt = self.parent
        while prompt is not None:
            ids = prompt.token_ids + ids
            completion = prompt.parent
            if prompt.token_ids or completion is None:
                break
            ids, prompt = completion.token_ids + ids, completion.parent
        return ids

    def agrees(self, given: Mapping[int, bytes], position: int) -> bool:
        """Tell whether the reasoning in a request's messages, up to a position, is what was said.

        given: digests by the position of their message. What was generated here may be missing, nothing may differ.
        """
        said: dict[int, Reasoning] = {}
        for turn in self.chain():
            for reasoning in turn.reasoning:
                said.setdefault(reasoning.position, reasoning)  # of a message that was continued, all of it
        if any(place not in said for place in given if place <= position):
            return False
        return all(given.get(place, each.digest if each.ours else None) == each.digest for place, each in said.items())
