"""Finds the stop string that completes first, and how much text at the end may still become one."""

import re
from functools import lru_cache

# Automata of longer stop lists are built per request, so that the cache stays small.
_CACHED_CHARS = 256


class StopAutomaton:
    """Immutable Aho-Corasick automaton, shared by all sequences with the same stop strings.

    A state is the longest suffix of the text so far that is a prefix of some stop string; 0 is the empty one.
    """

    __slots__ = ("_fallback", "_matched", "_next", "find_first", "held", "stops")

    def __init__(self, stops: tuple[str, ...]) -> None:
        if not all(stops):
            raise ValueError("a stop string is empty")
        self.stops = stops
        self.find_first = re.compile("[" + "".join(re.escape(c) for c in sorted({s[0] for s in stops})) + "]").search
        """Finds the first character that can leave state 0: most text has none and needs no automaton."""
        self._next: list[dict[str, int]] = [{}]
        self._matched: list[int] = [-1]
        self._fallback: list[int] = [0]
        self.held: list[int] = [0]
        """By state: number of characters at the end of the text that may still become a stop string."""
        depths = self._add_stops()
        self._link(depths)

    def _add_stops(self) -> list[int]:
        depths = [0]
        for index, stop in enumerate(self.stops):
            state = 0
            for char in stop:
                following = self._next[state].get(char)
                if following is None:
                    following = self._next[state][char] = len(self._next)
                    self._next.append({})
                    self._matched.append(-1)
                    depths.append(depths[state] + 1)
                state = following
            if self._matched[state] < 0:
                self._matched[state] = index
        return depths

    def _link(self, depths: list[int]) -> None:
        self._fallback = [0] * len(depths)
        self.held = [0] * len(depths)
        queue = [0]
        for state in queue:  # grows during the loop: breadth first, so that shorter suffixes are complete
            fallback = self._fallback[state]
            if state:
                # If several stop strings complete at once, the first in the list wins.
                self._matched[state] = _first(self._matched[state], self._matched[fallback])
                self.held[state] = depths[state] if self._next[state] else self.held[fallback]
            for char, following in self._next[state].items():
                if state:
                    self._fallback[following] = self._step(fallback, char)
                queue.append(following)

    def _step(self, state: int, char: str) -> int:
        while (following := self._next[state].get(char)) is None and state:
            state = self._fallback[state]
        return following or 0

    def scan(self, state: int, text: str, eligible: bool) -> tuple[int, int, int]:
        """Scan text from a state; return the new state, and end and index of the first match, or -1 and -1.

        Matches are ignored unless eligible.
        """
        transitions, fallbacks, matched = self._next, self._fallback, self._matched
        position, length = 0, len(text)
        while position < length:
            if not state:
                first = self.find_first(text, position)
                if first is None:
                    return 0, -1, -1
                position = first.start()
            char = text[position]
            position += 1
            while (following := transitions[state].get(char)) is None and state:
                state = fallbacks[state]
            state = following or 0
            if eligible and matched[state] >= 0:
                return state, position, matched[state]
        return state, -1, -1


def _first(one: int, other: int) -> int:
    return max(one, other) if one < 0 or other < 0 else min(one, other)


def compile_stops(stops: tuple[str, ...]) -> StopAutomaton:
    """Return the automaton for these stop strings; small ones are cached, because requests repeat them."""
    if sum(map(len, stops)) > _CACHED_CHARS:
        return StopAutomaton(stops)
    return _compile_cached(stops)


@lru_cache(maxsize=256)
def _compile_cached(stops: tuple[str, ...]) -> StopAutomaton:
    return StopAutomaton(stops)


class StopScanner:
    """Scans the text of one sequence, holding back what may become a stop string."""

    __slots__ = ("_automaton", "_include", "find_first", "held", "state")

    def __init__(self, automaton: StopAutomaton, include_stop_str_in_output: bool) -> None:
        self._automaton = automaton
        self._include = include_stop_str_in_output
        self.held = ""
        """Text that may become a stop string."""
        self.state = 0
        """The automaton's state. While it is 0, text without a find_first match need not be pushed."""
        self.find_first = automaton.find_first

    def push(self, text: str, eligible: bool) -> tuple[str, str | None]:
        """Add text; return the text to emit, and the stop string that it completed, if eligible.

        After a match nothing is held, and the returned text is the last: without the stop string, or up to its end.
        """
        automaton = self._automaton
        self.state, end, index = automaton.scan(self.state, text, eligible)
        if index >= 0:
            return self._cut(text[:end], automaton.stops[index])
        if self._include:
            return text, None
        text = self.held + text
        end = len(text) - automaton.held[self.state]
        self.held = text[end:]
        return text[:end], None

    def flush(self) -> str:
        """Return the held text, at the end of the sequence."""
        held, self.held = self.held, ""
        return held

    def _cut(self, text: str, stop: str) -> tuple[str, str]:
        text = self.flush() + text
        return (text if self._include else text[: len(text) - len(stop)]), stop
