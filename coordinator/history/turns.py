"""Conversations as ids: each turn has its own ids and a reference to the turn that it continues."""

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

Ending = Literal["token", "stop", "cut", "unknown"]
"""How a reply ended: with an end token of the model, at a stop string or stop token of the request, or
before its end (length, abort)."""


@dataclass(frozen=True, slots=True)
class MessageReasoning:
    """The reasoning of one assistant message."""

    position: int
    """Position of the message in its conversation."""
    digest: bytes
    generated: bool
    """Whether it was generated here: then clients may omit it."""


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """The end of a prompt, or a completion."""

    token_ids: "array[int]"
    """The ids after the parent's, unsigned 32 bits each."""
    parent: "Turn | None" = None
    ending: Ending = "cut"
    reasoning: tuple[MessageReasoning, ...] = ()

    def chain(self) -> "Iterator[Turn]":
        """Yield this turn and all before it, newest first."""
        turn: Turn | None = self
        while turn is not None:
            yield turn
            turn = turn.parent

    def all_ids(self) -> "array[int]":
        """Return all ids of the conversation."""
        joined = array("I")
        for turn in reversed(list(self.chain())):
            joined += turn.token_ids
        return joined

    def message_ids(self) -> "array[int]":
        """Return the ids of a completion's message, preceded by the last part of the prompt.

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
        """Return whether the reasoning in a request's messages, up to a position, matches these turns.

        `given`: digests by message position. Reasoning that was generated here may be missing, but none may differ.
        """
        recorded: dict[int, MessageReasoning] = {}
        for turn in self.chain():
            for reasoning in turn.reasoning:
                recorded.setdefault(reasoning.position, reasoning)  # the newest: of a continued message, all of it
        if any(place not in recorded for place in given if place <= position):
            return False
        return all(
            given.get(place, each.digest if each.generated else None) == each.digest for place, each in recorded.items()
        )
