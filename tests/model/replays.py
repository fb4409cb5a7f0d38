"""Real code as a table of transitions: a state is reached again by running what first led to it."""

from collections.abc import Callable, Hashable
from functools import cache
from typing import Generic, Protocol, TypeVar

from tests.model.stepped_loop import SteppedLoop

Input = TypeVar("Input", contravariant=True)
Output = TypeVar("Output", covariant=True)


class Replayed(Protocol[Input, Output]):
    """Real code that takes one step at a time."""

    def feed(self, event: Input) -> Output:
        """Let something happen, and return what the code did."""

    def key(self) -> Hashable:
        """Return all that decides what the code does from now on."""


class ReplayTable(Generic[Input, Output]):
    """The states of some code, by number, and its steps. States with equal keys are one."""

    INITIAL = 0

    def __init__(self, make: Callable[[SteppedLoop], Replayed[Input, Output]]) -> None:
        self._make = make
        self._loop = SteppedLoop()
        self._histories: list[tuple[Input, ...]] = []
        self._keys: list[Hashable] = []
        self._numbers: dict[Hashable, int] = {}
        self.step = cache(self._step)
        """Returns what the code does in a state when something happens, and the state that this leads to."""
        self._number(make(self._loop), ())
        self._loop.cancel_all()

    def key(self, state: int) -> Hashable:
        """Return the key of a state."""
        return self._keys[state]

    def close(self) -> None:
        """Close the loop."""
        self._loop.close()

    def _step(self, state: int, event: Input) -> tuple[int, Output]:
        code = self._make(self._loop)
        for each in self._histories[state]:
            code.feed(each)
        output = code.feed(event)
        number = self._number(code, (*self._histories[state], event))
        self._loop.cancel_all()
        return number, output

    def _number(self, code: Replayed[Input, Output], history: tuple[Input, ...]) -> int:
        key = code.key()
        if key not in self._numbers:
            self._numbers[key] = len(self._histories)
            self._histories.append(history)
            self._keys.append(key)
        return self._numbers[key]
