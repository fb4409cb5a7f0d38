"""Exploration visits what can be reached, once, and shows the shortest way to what is wrong."""

from collections.abc import Iterator

import pytest

from tests.model.explore import Explorer, StateLimitExceeded, explore


class Counters:
    """Two counters, each of which goes from 0 to 3; which is which does not matter."""

    def __init__(self, forbidden: tuple[int, int] = (9, 9), stuck: tuple[int, int] = (9, 9)) -> None:
        self._forbidden = forbidden
        self._stuck = stuck

    def initial(self) -> tuple[int, int]:
        """Begin at 0."""
        return 0, 0

    def steps(self, state: tuple[int, int]) -> Iterator[tuple[str, tuple[int, int]]]:
        """Increment either."""
        left, right = state
        if left < 3 and state != self._stuck:
            yield "left", (left + 1, right)
        if right < 3 and state != self._stuck:
            yield "right", (left, right + 1)

    def canonical(self, state: tuple[int, int]) -> tuple[int, int]:
        """Put the greater first."""
        return max(state), min(state)

    def is_final(self, state: tuple[int, int]) -> bool:
        """Both have ended."""
        return state == (3, 3)

    def violation(self, state: tuple[int, int]) -> str:
        """One state is forbidden."""
        return "forbidden" if state == self._forbidden else ""

    def step_violation(self, before: tuple[int, int], after: tuple[int, int]) -> str:
        """A counter goes up."""
        return "" if sum(after) > sum(before) else "down"


def test_each_state_is_visited_once_for_all_its_names() -> None:
    """Of 16 states 10 differ in more than the names."""
    found = explore(Counters())

    assert (found.states, found.transitions, found.final, found.violation) == (10, 15, 1, None)


def test_a_violation_has_the_shortest_trace_in_names_that_stay() -> None:
    """Although states are renamed on the way."""
    found = explore(Counters(forbidden=(2, 1)))

    assert found.violation is not None
    assert found.violation.text == "forbidden"
    assert sorted(found.violation.trace) in (["left", "left", "right"], ["left", "right", "right"])


def test_a_state_that_leads_nowhere_is_found() -> None:
    """From every state one at rest must be reachable."""
    found = explore(Counters(stuck=(3, 2)))

    assert found.violation is not None
    assert "never comes to rest" in found.violation.text


def test_traces_are_those_to_all_states_up_to_a_depth() -> None:
    """Each the shortest one."""
    explorer = Explorer(Counters())
    explorer.run()

    assert sorted(len(trace) for trace in explorer.traces(depth=2)) == [0, 1, 2, 2]


def test_an_exploration_has_a_limit() -> None:
    """So that a model that grew without end fails."""
    with pytest.raises(StateLimitExceeded, match="more than 5"):
        explore(Counters(), limit=5)
