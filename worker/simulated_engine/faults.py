"""Faults of a simulated engine on command: parsed once, then checked before every step.

Grammar of one fault:

    KIND@TRIGGER=N[:OPTION=VALUE]...

    KIND     crash   the engine dies: ERROR for every live sequence, then EngineFailed
             hang    there is no more output, not even the end of an aborted sequence
             exit    the process ends at once, as after an out-of-memory kill; option code (137)
             slow    steps take longer; options factor (10) and steps (0: from then on)
             error   the sequences of one request end with ERROR; option after (1), the tokens before that
    TRIGGER  step    when step N is about to run, after N - 1 steps
             tokens  when N tokens have been generated
             request when N requests have been accepted; the only trigger of error, which hits that request
             prompt  when a prompt with the token id N has been accepted

Examples: crash@tokens=500, hang@step=100, slow@step=50:factor=10:steps=20, error@request=3:after=8.
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar


class FaultKind(enum.StrEnum):
    """Kind of a fault."""

    CRASH = "crash"
    HANG = "hang"
    EXIT = "exit"
    SLOW = "slow"
    ERROR = "error"


class FaultTrigger(enum.StrEnum):
    """Condition that triggers a fault."""

    STEP = "step"
    TOKENS = "tokens"
    REQUEST = "request"
    PROMPT = "prompt"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, which happens once; see the grammar for the options."""

    kind: FaultKind
    trigger: FaultTrigger
    at: int
    factor: float = 10.0
    steps: int = 0
    after: int = 1
    code: int = 137


_OPTIONS: dict[FaultKind, frozenset[str]] = {
    FaultKind.CRASH: frozenset(),
    FaultKind.HANG: frozenset(),
    FaultKind.EXIT: frozenset({"code"}),
    FaultKind.SLOW: frozenset({"factor", "steps"}),
    FaultKind.ERROR: frozenset({"after"}),
}
_LEAST = {"steps": 0, "after": 1, "code": 0}
_Name = TypeVar("_Name", bound=enum.StrEnum)


def parse_fault(text: str) -> Fault:
    """Parse one fault. Raises ValueError with a message that names the mistake."""
    head, *options = text.strip().split(":")
    kind_text, _, condition = head.partition("@")
    trigger_text, _, at_text = condition.partition("=")
    kind = _member(FaultKind, kind_text, "kind", text)
    trigger = _member(FaultTrigger, trigger_text, "trigger", text)
    if kind is FaultKind.ERROR and trigger is not FaultTrigger.REQUEST:
        raise ValueError(f"fault {text!r}: error needs the trigger request, as in error@request=3")
    at = _integer(at_text, trigger_text, 1, text)
    values: dict[str, int] = {}
    factor = 10.0
    for option in options:
        name, _, value = option.partition("=")
        if name not in _OPTIONS[kind]:
            known = ", ".join(sorted(_OPTIONS[kind])) or "none"
            raise ValueError(f"fault {text!r}: {kind} has no option {name!r}; its options: {known}")
        if name == "factor":
            factor = _positive(value, name, text)
        else:
            values[name] = _integer(value, name, _LEAST[name], text)
    return Fault(kind, trigger, at, factor, **values)


def _member(kinds: type[_Name], name: str, what: str, text: str) -> _Name:
    try:
        return kinds(name)
    except ValueError:
        known = ", ".join(kinds)
        raise ValueError(f"fault {text!r}: {what} {name!r} is none of {known}; write KIND@TRIGGER=N") from None


def _integer(value: str, name: str, least: int, text: str) -> int:
    if not value.isascii() or not value.isdecimal() or int(value) < least:
        raise ValueError(f"fault {text!r}: {name} must be an integer of at least {least}, not {value!r}")
    return int(value)


def _positive(value: str, name: str, text: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not 0.0 < number < float("inf"):
        raise ValueError(f"fault {text!r}: {name} must be a number above 0, not {value!r}")
    return number


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """All faults of one engine."""

    faults: tuple[Fault, ...] = ()

    @classmethod
    def parse(cls, texts: Iterable[str]) -> "FaultPlan":
        """Parse faults, each text one fault or several separated by commas."""
        return cls(tuple(parse_fault(one) for text in texts for one in text.split(",") if one.strip()))


class FaultSchedule:
    """The faults of a plan that have not happened yet."""

    __slots__ = ("_errors", "_pending", "_seen_tokens", "_trigger_tokens")

    def __init__(self, plan: FaultPlan) -> None:
        self._errors = {fault.at: fault.after for fault in plan.faults if fault.kind is FaultKind.ERROR}
        self._pending = [fault for fault in plan.faults if fault.kind is not FaultKind.ERROR]
        self._trigger_tokens = {fault.at for fault in self._pending if fault.trigger is FaultTrigger.PROMPT}
        self._seen_tokens: set[int] = set()
        """Trigger tokens that prompts have contained."""

    def error_after(self, request: int) -> int | None:
        """Return after how many tokens the n-th request fails, None if it does not."""
        return self._errors.get(request)

    def on_prompt(self, prompt: Iterable[int]) -> None:
        """Record an accepted prompt."""
        if self._trigger_tokens:
            self._seen_tokens |= self._trigger_tokens.intersection(prompt)

    def due(self, step: int, tokens: int, requests: int) -> list[Fault]:
        """Remove and return the faults that are due before this step."""
        if not self._pending:
            return []
        counts = {FaultTrigger.STEP: step, FaultTrigger.TOKENS: tokens, FaultTrigger.REQUEST: requests}
        due = [fault for fault in self._pending if fault.at <= counts.get(fault.trigger, 0)]
        due += [
            fault for fault in self._pending if fault.trigger is FaultTrigger.PROMPT and fault.at in self._seen_tokens
        ]
        if due:
            self._pending = [fault for fault in self._pending if fault not in due]
        return due
