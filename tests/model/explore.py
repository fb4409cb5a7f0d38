"""Visits every state that a small system can reach, breadth first, and checks each of them."""

from array import array
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

State = TypeVar("State", bound=Hashable)
Event = TypeVar("Event", bound=Hashable, covariant=True)


class TransitionSystem(Protocol[State, Event]):
    """States, and what may happen next in each of them; a pure function."""

    def initial(self) -> State:
        """Return the first state."""

    def steps(self, state: State) -> Iterable[tuple[Event, State]]:
        """Yield what may happen in a state, and the state that it leads to."""

    def canonical(self, state: State) -> State:
        """Return one state for all that differ only in the names of equal parts."""

    def is_final(self, state: State) -> bool:
        """Return whether the system is at rest: one of these must be reachable from everywhere."""

    def violation(self, state: State) -> str:
        """Return what is wrong with a state; empty if nothing is."""

    def step_violation(self, before: State, after: State) -> str:
        """Return what is wrong with a step between two states that are not renamed; empty if nothing is."""


@dataclass(frozen=True, slots=True)
class Violation(Generic[Event]):
    """A statement that does not hold, and the shortest way there."""

    text: str
    trace: tuple[Event, ...]

    def __str__(self) -> str:
        lines = (f"  {number}. {event}" for number, event in enumerate(self.trace, 1))
        return "\n".join((self.text, *lines))


@dataclass(frozen=True, slots=True)
class Exploration(Generic[Event]):
    """What was visited."""

    states: int
    transitions: int
    final: int
    violation: Violation[Event] | None


class StateLimitExceeded(Exception):
    """A system has more states than were allowed for."""


class Explorer(Generic[State, Event]):
    """One exploration: canonical states in order of discovery, each with the state that it was first reached from."""

    def __init__(self, system: TransitionSystem[State, Event], limit: int = 2_000_000) -> None:
        self._system = system
        self._limit = limit
        self._states: list[State] = []
        self._numbers: dict[State, int] = {}
        self._parents = array("i")
        self._sources, self._targets = array("i"), array("i")

    def run(self) -> Exploration[Event]:
        """Visit all states, or those up to the first violation. Raises StateLimitExceeded."""
        system = self._system
        self._visit(system.canonical(system.initial()), -1)
        final: list[int] = []
        for number, state in enumerate(self._states):  # it grows meanwhile
            text = system.violation(state)
            if text:
                return self._result(final, Violation(text, self.trace(number)))
            if system.is_final(state):
                final.append(number)
            for _, following in system.steps(state):
                text = system.step_violation(state, following)
                target = self._visit(system.canonical(following), number)
                if text:
                    return self._result(final, self._wrong_step(number))
                self._sources.append(number)
                self._targets.append(target)
        stuck = self._cannot_reach(final)
        if stuck is not None:
            return self._result(final, Violation("the system never comes to rest again", self.trace(stuck)))
        return self._result(final, None)

    def trace(self, number: int) -> tuple[Event, ...]:
        """Return the events that lead to a state, in names that stay the same from the first one on."""
        return self._replayed(number)[0]

    def _wrong_step(self, number: int) -> Violation[Event]:
        trace, state = self._replayed(number)
        steps = ((event, self._system.step_violation(state, after)) for event, after in self._system.steps(state))
        event, text = next(step for step in steps if step[1])
        return Violation(text, (*trace, event))

    def _replayed(self, number: int) -> tuple[tuple[Event, ...], State]:
        path = [number]
        while self._parents[path[-1]] >= 0:
            path.append(self._parents[path[-1]])
        system, events = self._system, []
        state = system.initial()
        for each in reversed(path[:-1]):
            wanted = self._states[each]
            while system.canonical(state) != wanted:
                event, state = self._step_towards(state, wanted)
                events.append(event)
        return tuple(events), state

    def _step_towards(self, state: State, wanted: State) -> tuple[Event, State]:
        """Return the step to a state, or else one that makes no difference and is still to come."""
        known = self._system.canonical(state)
        steps = [(step, self._system.canonical(step[1])) for step in self._system.steps(state)]
        found = [step for step, after in steps if after == wanted]
        return (found or [step for step, after in steps if after == known])[0]

    def traces(self, depth: int) -> Iterator[tuple[Event, ...]]:
        """Yield the shortest trace to each state that was reached in at most so many steps."""
        depths = array("i")
        for number, parent in enumerate(self._parents):
            depths.append(0 if parent < 0 else depths[parent] + 1)
            if depths[number] <= depth:
                yield self.trace(number)

    def _visit(self, state: State, parent: int) -> int:
        number = self._numbers.get(state)
        if number is None:
            number = self._numbers[state] = len(self._states)
            self._states.append(state)
            self._parents.append(parent)
            if number >= self._limit:
                raise StateLimitExceeded(f"more than {self._limit} states")
        return number

    def _cannot_reach(self, final: list[int]) -> int | None:
        """Return the first state from which no final one can be reached; None if there is none."""
        before: list[list[int]] = [[] for _ in self._states]
        for source, target in zip(self._sources, self._targets, strict=True):
            before[target].append(source)
        seen = bytearray(len(self._states))
        waiting = list(final)
        while waiting:
            number = waiting.pop()
            if not seen[number]:
                seen[number] = 1
                waiting.extend(before[number])
        stuck = seen.find(0)
        return None if stuck < 0 else stuck

    def _result(self, final: list[int], violation: Violation[Event] | None) -> Exploration[Event]:
        return Exploration(len(self._states), len(self._sources), len(final), violation)


def explore(system: TransitionSystem[State, Event], limit: int = 2_000_000) -> Exploration[Event]:
    """Visit every state of a system. Raises StateLimitExceeded."""
    return Explorer(system, limit).run()
