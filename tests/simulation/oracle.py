"""What a client must read: ids that engines generate for its request, and the text that follows from them."""

import copy
from collections.abc import Sequence

from tests.simulation.engines import Placement
from tokenwire.v1 import inference_pb2 as pb

IM_START, IM_END, END_OF_TEXT = 257, 258, 256
"""Ids of the built-in tokenizer; the ids below are bytes."""


def chat_prompt(messages: Sequence[tuple[str, str]]) -> list[int]:
    """Return the ids of a chat, rendered by hand in ChatML."""
    ids: list[int] = []
    for role, content in messages:
        ids += [IM_START, *f"{role}\n{content}".encode(), IM_END, *b"\n"]
    return [*ids, IM_START, *b"assistant\n"]


def decode(token_ids: Sequence[int]) -> str:
    """Return the text of ids, without special tokens."""
    return bytes([token for token in token_ids if token < END_OF_TEXT]).decode(errors="replace")


class ChoiceOracle:
    """Checks the ids of one choice, as they come, against its placements.

    Each id must be the next one that some placement draws after exactly the ids before it. The placement may change, to
    a later one only: that is what failover does. Seeded ids are those of one undisturbed run, as long as the weights
    are the same.
    """

    def __init__(self, prompt: Sequence[int], seed: int | None = None) -> None:
        """`seed`: the choice's own, of a request with a seed."""
        self.token_ids: list[int] = []
        self.finish: pb.Finish | None = None
        """The end that the engine reports with the last id, if any."""
        self.moved = 0
        """How often the placement has changed."""
        self.crossed = ""
        """Where it has just gone on at an engine that started with other weights; empty: nowhere."""
        self._prompt = tuple(prompt)
        self._seed = seed
        self._current = -1
        self._without_stop = 0
        """How many ids are known to hold no complete stop string."""
        self._drawn: dict[int, tuple[list[int], pb.Finish | None]] = {}
        self._placements: Sequence[Placement] = ()

    def take(self, token_ids: Sequence[int], placements: Sequence[Placement]) -> str:
        """Take new ids; return what is wrong with them, empty if nothing."""
        self._placements = placements
        for token in token_ids:
            if not self._explain(token, placements):
                done = len(self.token_ids)
                return f"token {token} at {done} is what none of {len(placements)} placements generates there"
            self.token_ids.append(token)
        return ""

    def visible_text(self, stops: Sequence[str]) -> tuple[str, int | None]:
        """Return the text up to the first stop string, and after how many ids it was complete (None: none is in it).

        Decoded anew for each prefix, so that nothing is shared with the code that is checked.
        """
        for count in range(self._without_stop + 1, len(self.token_ids) + 1) if stops else ():
            text = decode(self.token_ids[:count])
            found = [text.index(stop) for stop in stops if stop in text]
            if found:  # of those that are complete at once, the first in the list
                return text[: found[0]], count
            self._without_stop = count
        return decode(self.token_ids), None

    def versions_at(self, place: int) -> set[str]:
        """Return the versions of the weights with which engines generated the id at a place."""
        found = set()
        for number, placement in enumerate(self._placements):
            drawn, _ = self._draw(number, placement)
            own = place - len(placement.prompt) + len(self._prompt)
            if 0 <= own < len(placement.generated) and drawn[: own + 1] == self.token_ids[place - own : place + 1]:
                found.add(placement.generated[own])
        return found

    def _explain(self, token: int, placements: Sequence[Placement]) -> bool:
        for number in range(max(0, self._current), len(placements)):
            if self._may_run(placements[: number + 1]) and self._draws(number, placements[number], token):
                self.moved += self._current not in (-1, number)
                self._check_weights(placements, number)
                self._current = number
                return True
        return False

    def _check_weights(self, placements: Sequence[Placement], number: int) -> None:
        """Note where it goes on with other weights, unless an operation has brought them to all workers.

        A placement that has drawn all ids so far by itself may have been the choice's from the beginning.
        """
        placement, before = placements[number], placements[self._current if self._current >= 0 else number]
        continues = len(placement.prompt) > len(self._prompt)
        if continues and placement.checkpoint != before.checkpoint and not placement.weights:
            self.crossed = f"from {before.engine.instance} to {placement.engine.instance} at {len(self.token_ids)}"

    def _draw(self, number: int, placement: Placement) -> tuple[list[int], pb.Finish | None]:
        if number not in self._drawn:
            self._drawn[number] = _draw_all(placement)
        return self._drawn[number]

    def _may_run(self, placements: Sequence[Placement]) -> bool:
        """Return whether the last of these placements may be the choice's."""
        placement = placements[-1]
        if self._seed is None:
            return True
        begins_anew = placement.prompt == self._prompt or not placement.has_state
        return placement.seed == self._seed and (begins_anew or len({each.weights for each in placements}) > 1)

    def _draws(self, number: int, placement: Placement, token: int) -> bool:
        prefix = placement.prompt[len(self._prompt) :]
        done = len(self.token_ids)
        if placement.prompt[: len(self._prompt)] != self._prompt or tuple(self.token_ids[: len(prefix)]) != prefix:
            return False
        drawn, finish = self._draw(number, placement)
        place = done - len(prefix)
        # A replay draws all ids again: those that the client has must be the same.
        if not 0 <= place < len(placement.generated) or drawn[place] != token:
            return False
        if drawn[:place] != self.token_ids[len(prefix) : done]:
            return False
        self.finish = finish if place == len(drawn) - 1 else None
        return True


def _draw_all(placement: Placement) -> tuple[list[int], pb.Finish | None]:
    source = copy.copy(placement.source)
    drawn: list[int] = []
    while source.finish is None:
        drawn += source.take(1)
    return drawn, source.finish
