"""What a client must read: ids that engines generate for its request, and the text that follows from them."""

import copy
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True, slots=True)
class EndRules:
    """What ends a choice before its last token."""

    stops: tuple[str, ...] = ()
    stop_ids: frozenset[int] = frozenset()
    min_tokens: int = 0
    """Nothing ends it before so many."""
    shows_stop: bool = False
    """Whether the text has what ended it."""

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> "EndRules":
        """Return the rules of a script's request."""
        stops, stop_ids = spec["stop"] or (), spec.get("stop_token_ids") or ()
        return cls(tuple(stops), frozenset(stop_ids), spec.get("min_tokens", 0), spec.get("include_stop", False))

    def hidden_ends(self) -> list[list[int]]:
        """Return the ids that may have ended a choice without being in its text."""
        hidden = [] if self.shows_stop else [*([each] for each in sorted(self.stop_ids)), *map(_ids_of, self.stops)]
        return [[], [IM_END], *hidden]


def _ids_of(text: str) -> list[int]:
    return list(text.encode())


class ChoiceOracle:
    """Checks the ids of one choice, as they come, against its placements.

    Each id must be the next one that some placement draws after exactly the ids before it. The placement may change, to
    a later one only: that is what failover does. Where they must be those of one undisturbed run, one placement has to
    draw them all, as long as the weights are the same.
    """

    STOP = pb.FINISH_REASON_STOP

    def __init__(
        self,
        prompt: Sequence[int],
        seed: int | None = None,
        single_run: bool = True,
        ends: EndRules | None = None,
        unless_unseeded: bool = False,
    ) -> None:
        """`seed`: the choice's own, of a request with a seed. `single_run`: whether one run must give all ids.

        `unless_unseeded`: not if an engine got no seed for it, since nothing but its tokens is left to go on from then.
        """
        self.token_ids: list[int] = []
        self.finish: pb.Finish | None = None
        """The end that the engine reports with the last id, if any."""
        self.moved = 0
        """How often the placement has changed."""
        self.continued = False
        """Whether it has gone on at an engine that began with some of its ids."""
        self.crossed = ""
        """Where it has just gone on at an engine that started with other weights; empty: nowhere."""
        self.diverged = False
        """Whether it has gone on though a replay differed."""
        self._prompt = tuple(prompt)
        self._seed = seed
        self._single_run = single_run
        self._unless_unseeded = unless_unseeded
        self._ends = ends or EndRules()
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
        if token_ids and self._single_run and self.moved and not self.is_of_one_run():
            return f"the {len(self.token_ids)} tokens after {self.moved} moves are not those of one run"
        return ""

    def is_of_one_run(self) -> bool:
        """Return whether one run may have generated all ids: or several, if weights have changed between them."""
        if len({(each.weights, each.checkpoint) for each in self._placements}) > 1:
            return True
        if self._unless_unseeded and not all(each.seeded for each in self._placements):
            return True
        return any(self._generates_all(number, each) for number, each in enumerate(self._placements))

    def fork(self) -> "ChoiceOracle":
        """Return one that may take other ids."""
        fork = copy.copy(self)
        fork.token_ids = self.token_ids[:]
        return fork

    def visible_text(self) -> tuple[str, tuple[str, int] | None]:
        """Return the text, and the stop string that ends it with the number of tokens after which it was complete.

        Decoded anew for each prefix, so that nothing is shared with the code that is checked.
        """
        rules, ids = self._ends, self.token_ids
        if ids and ids[-1] in rules.stop_ids and not rules.shows_stop:
            ids = ids[:-1]
        for count in range(self._without_stop + 1, len(ids) + 1) if rules.stops else ():
            text, before = decode(ids[:count]), len(decode(ids[: count - 1]))
            for stop in rules.stops if count > rules.min_tokens else ():
                start = text.find(stop, max(0, before - len(stop) + 1))
                if start >= 0:  # of those that are complete at once, the first in the list
                    return text[: start + len(stop) * rules.shows_stop], (stop, count)
            self._without_stop = count
        return decode(ids), None

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
                self.continued |= len(placements[number].prompt) > len(self._prompt)
                self.diverged |= self._current < number and self._has_diverged(placements[: number + 1])
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
        may_go_on = begins_anew or len({each.weights for each in placements}) > 1 or self._has_diverged(placements)
        return placement.seed == self._seed and may_go_on

    def _has_diverged(self, placements: Sequence[Placement]) -> bool:
        """Return whether the last of these placements goes on though a replay before it gave other ids."""
        known = list(placements[-1].prompt[len(self._prompt) :])
        replays = enumerate(placements[1:-1], 1)
        return not self._single_run and any(
            (each.prompt, each.seed) == (self._prompt, placements[-1].seed)
            and self._draw(number, each)[0][: len(known)] != known
            for number, each in replays
        )

    def _generates_all(self, number: int, placement: Placement) -> bool:
        drawn, _ = self._draw(number, placement)
        return placement.prompt == self._prompt and drawn[: len(self.token_ids)] == self.token_ids

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


def runs_differ_at(place: int, placements: Sequence[Placement], prompt: Sequence[int]) -> bool:
    """Return whether two runs of one choice from its start differ there first, or one of them ends there."""
    runs = [(each.seed, _draw_all(each)[0]) for each in placements if each.prompt == tuple(prompt)]
    return any(
        seed == other_seed and one[:place] == other[:place] and one[place : place + 1] != other[place : place + 1]
        for (seed, one), (other_seed, other) in itertools.combinations(runs, 2)
    )
