"""Where the choices of requests have been, as witnesses saw it: what may have ended them early.

A witness around each queue sees what is queued, sent and rejected, one of all sessions sees what is refused and which
sessions end.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tests.simulation.world import Node
from tokenwire.v1 import inference_pb2 as pb

Choice = tuple[str, int]
"""A request's id, and the position of one of its choices."""

_WAITED_S = 0.15
"""Frames wait for less in a coordinator that is behind, on a machine that is late."""


@dataclass(slots=True, eq=False)
class Visit:
    """One session with a worker, and which choices its coordinator has placed there."""

    address: str
    process: Node
    """The worker's."""
    choices: dict[int, Choice] = field(default_factory=dict)
    """By slot, until they end there or are placed elsewhere."""
    drains: bool = False
    """Whether the worker has said that it drains: what is lost then does not count."""
    began_at: float = math.inf
    """When its coordinator read the welcome."""
    ended_at: float = math.inf


class Journeys:
    """Counts what each choice has met."""

    def __init__(self) -> None:
        self.losses: Counter[Choice] = Counter()
        """Workers that it lost, without an announcement, or that could not take it."""
        self.left_by_drains: set[str] = set()
        """Ids of requests of which a draining worker handed something back, or ended with it."""
        self.queued_since: dict[Choice, float] = {}
        """When those that are in a queue came there, or had a part of their request sent."""
        self.refusals: defaultdict[str, list[str]] = defaultdict(list)
        """Messages of workers that refused a request, by its id."""
        self.rejections: defaultdict[Node | None, set[str]] = defaultdict(set)
        """Messages of queues that took no further request, by coordinator process."""
        self.displaced: set[str] = set()
        """Ids of requests that left a queue for those of other tenants."""
        self._visits: defaultdict[Node | None, list[Visit]] = defaultdict(list)
        """Of each coordinator process, in order."""
        self._at: dict[Choice, tuple[Visit, int]] = {}
        """Where a choice is."""
        self._begun: dict[Choice, float] = {}
        """Those of which their coordinator has read tokens, and since when; infinity: they may have been dropped."""
        self._queued_again: set[Choice] = set()
        self._sent_again: set[Choice] = set()
        """Those of them that were queued, or sent to a worker, after that."""
        self._had_tokens: set[Choice] = set()
        """Those that left a worker so long after that, that their tokens cannot have waited in a coordinator."""
        self._must_say: set[Choice] = set()
        """Those of them that were sent to a worker again."""

    def open_visit(self, coordinator: Node | None, address: str, process: Node) -> Visit:
        """Begin a session."""
        visit = Visit(address, process)
        self._visits[coordinator].append(visit)
        return visit

    def on_welcome(self, visit: Visit, now: float, drains: bool) -> None:
        """Take that a worker has answered."""
        visit.began_at, visit.drains = now, drains

    def on_sent(self, coordinator: Node | None, address: str, choices: Mapping[int, Choice]) -> None:
        """Take that a coordinator has sent choices to a worker: the newest places, by slot."""
        visit = next(each for each in reversed(self._visits[coordinator]) if each.address == address)
        for slot, choice in choices.items():
            self.queued_since.pop(choice, None)
            self._leave(choice)
            visit.choices[slot] = choice
            self._at[choice] = visit, slot
        self._sent_again.update(self._begun.keys() & set(choices.values()))
        self._must_say.update(self._had_tokens.intersection(choices.values()))

    def on_queued(self, choices: Sequence[Choice], now: float) -> None:
        """Take that choices wait, or go on waiting after a part of their request was sent."""
        self._queued_again.update(self._begun.keys() & set(choices))
        for choice in choices:
            self._leave(choice)
            self.queued_since[choice] = now

    def on_tokens(self, visit: Visit, slot: int) -> None:
        """Take that a coordinator has read tokens of what is in a slot."""
        if (choice := visit.choices.get(slot)) is not None:
            self._begun[choice] = min(self._begun.get(choice, math.inf), visit.process.world.time())

    def mark_problem(self, choices: Collection[Choice], says_resumed: bool) -> str:
        """Return what is wrong with what some choices say together that have ended; empty if nothing."""
        if says_resumed and not (self._sent_again | self._queued_again).intersection(choices):
            return f"{choices} was resumed, it says, and was not"
        # One that is aborted while it waits to be resumed may say either, as may one whose tokens waited as it moved.
        return "" if says_resumed or self._must_say.isdisjoint(choices) else f"{choices} does not say: resumed"

    def on_refusal(self, visit: Visit, refusal: pb.Refusal) -> None:
        """Take that a worker has refused what is in some slots."""
        for slot in refusal.slots:
            if (choice := visit.choices.get(slot)) is not None:
                self.refusals[choice[0]].append(refusal.message)
                if refusal.code == pb.REFUSAL_CODE_UNAVAILABLE:
                    self.losses[choice] += 1
                self._leave(choice)

    def on_finish(self, visit: Visit, finish: pb.Finish) -> None:
        """Take the end of a choice at a worker."""
        visit.drains |= finish.handed_back
        if (choice := visit.choices.get(finish.slot)) is not None:
            if finish.handed_back and finish.reason == pb.FINISH_REASON_ERROR:
                self.losses[choice] += 1
            elif finish.handed_back:
                self.left_by_drains.add(choice[0])
            self._leave(choice)

    def on_end(self, visit: Visit, now: float) -> None:
        """Take the end of a session."""
        visit.ended_at = now
        choices = list(visit.choices.values())
        if visit.drains:
            self.left_by_drains.update(request_id for request_id, _ in choices)
        else:
            self.losses.update(choices)
        for choice in choices:
            self._leave(choice)

    def most_losses(self, request_id: str) -> int:
        """Return the losses of the choice of a request that has most."""
        return max((count for (own, _), count in self.losses.items() if own == request_id), default=0)

    def longest_wait_s(self, request_id: str, now: float) -> float:
        """Return for how long the choice of a request has been queued that waits longest."""
        return max((now - since for (own, _), since in self.queued_since.items() if own == request_id), default=0.0)

    def was_served(self, coordinator: Node | None, since: float) -> bool:
        """Return whether a worker has been connected to a coordinator all the time."""
        return any(visit.began_at < since and visit.ended_at == math.inf for visit in self._visits[coordinator])

    def known_processes(self, coordinator: Node | None, since: float) -> list[Node]:
        """Return the processes of the workers that a coordinator has known, connected or not."""
        welcomed = [visit for visit in self._visits[coordinator] if visit.began_at < math.inf]
        newest = {visit.address: visit for visit in welcomed}
        return [visit.process for visit in newest.values() if visit.began_at < since]

    def _leave(self, choice: Choice) -> None:
        visit, slot = self._at.pop(choice, (None, 0))
        if visit is None:
            return
        if visit.choices.get(slot) == choice:
            del visit.choices[slot]
        if self._begun.get(choice, math.inf) < visit.process.world.time() - _WAITED_S:
            self._had_tokens.add(choice)
        elif choice in self._begun:
            self._begun[choice] = math.inf
