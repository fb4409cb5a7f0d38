"""Faults that a simulated engine has on command: parsed once, then asked before every step.

Grammar of one fault:

    KIND@TRIGGER=N[:OPTION=VALUE]...

    KIND     crash   the engine dies: ERROR for every live sequence, then EngineFailed
             hang    nothing comes out any more, not even the end of an aborted sequence
             exit    the process ends at once, as after an out-of-memory kill; option code (137)
             slow    steps take longer; options factor (10) and steps (0: from then on)
             error   the sequences of one request end with ERROR; option after (1), their tokens until then
    TRIGGER  step    when step N is about to run, so N - 1 steps came out before
             tokens  when N tokens have come out
             request when N requests were accepted; the only trigger of error, which hits that request
             prompt  when a prompt with the token id N was accepted

Examples: crash@tokens=500, hang@step=100, slow@step=50:factor=10:steps=20, error@request=3:after=8.
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar


class FaultKind(enum.StrEnum):
    """What goes wrong."""

    CRASH = "crash"
    HANG = "hang"
    EXIT = "exit"
    SLOW = "slow"
    ERROR = "error"


class FaultTrigger(enum.StrEnum):
    """What is counted until it goes wrong."""

    STEP = "step"
    TOKENS = "tokens"
    REQUEST = "request"
    PROMPT = "prompt"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong, once; see the grammar for the options."""

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
    """Read one fault. Raises ValueError with a message that names what is wrong."""
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
    """All faults of one engine's life."""

    faults: tuple[Fault, ...] = ()

    @classmethod
    def parse(cls, texts: Iterable[str]) -> "FaultPlan":
        """Read faults, each text one fault or several with commas between them."""
        return cls(tuple(parse_fault(one) for text in texts for one in text.split(",") if one.strip()))


class FaultClock:
    """Tells when the faults of a plan strike."""

    __slots__ = ("_errors", "_pending", "_prompted", "_wanted")

    def __init__(self, plan: FaultPlan) -> None:
        self._errors = {fault.at: fault.after for fault in plan.faults if fault.kind is FaultKind.ERROR}
        self._pending = [fault for fault in plan.faults if fault.kind is not FaultKind.ERROR]
        self._wanted = {fault.at for fault in self._pending if fault.trigger is FaultTrigger.PROMPT}
        self._prompted: set[int] = set()
        """Token ids that faults wait for and prompts had."""

    def error_after(self, request: int) -> int | None:
        """After how many tokens the n-th request fails, None when it does not."""
        return self._errors.get(request)

    def saw(self, prompt: Iterable[int]) -> None:
        """Hear of a prompt that was accepted."""
        if self._wanted:
            self._prompted |= self._wanted.intersection(prompt)

    def due(self, step: int, tokens: int, requests: int) -> list[Fault]:
        """Take the faults that strike before this step; each strikes once."""
        if not self._pending:
            return []
        counts = {FaultTrigger.STEP: step, FaultTrigger.TOKENS: tokens, FaultTrigger.REQUEST: requests}
        due = [fault for fault in self._pending if fault.at <= counts.get(fault.trigger, 0)]
        due += [fault for fault in self._pending if fault.trigger is FaultTrigger.PROMPT and fault.at in self._prompted]
        if due:
            self._pending = [fault for fault in self._pending if fault not in due]
        return due
