"""Who is to blame when workers die: a request that kills each worker that it meets must not meet all of them.

The rule. A worker that dies unforeseen makes *suspects* of the requests that it had just begun with: those that had
got no more than a few tokens from it. A request that is suspect in the deaths of two worker processes within a time is
guilty if it is the only one. Where there are several, they are tried one after the other, alone among suspects, and
the one that a worker dies of on its trial is guilty. Requests in mid-reply are never suspects.

Its limits: a request that does harm only after more tokens is not found, it ends when its attempts are used up; and one
that was alone in its prefill on two workers that somebody killed within the time is stopped without guilt.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from coordinator.fleet.failover.sequence import ResumableSequence

_FEW_TOKENS = 4
_WINDOW_S = 60.0


@dataclass(slots=True)
class Verdict:
    """What becomes of the sequences that died with a worker."""

    innocent: list[ResumableSequence] = field(default_factory=list)
    """Go on at once."""
    guilty: list[ResumableSequence] = field(default_factory=list)
    """Are stopped."""


@dataclass(slots=True)
class _Record:
    """Deaths that a request was suspect in: when, by worker process."""

    deaths: dict[str, float] = field(default_factory=dict)


class Suspicion:
    """Remembers who was there when workers died."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._records: dict[object, _Record] = {}
        """By request."""
        self._waiting: deque[object] = deque()
        self._on_trial: object | None = None
        self._sequences: dict[object, list[ResumableSequence]] = {}
        """Those that wait for their trial, by request."""

    def judge(self, instance_id: str, lost: Iterable[ResumableSequence]) -> Verdict:
        """Say who goes on after a worker's death; who is neither innocent nor guilty waits for a trial."""
        verdict = Verdict()
        twice: dict[object, list[ResumableSequence]] = {}
        for sequence in lost:
            if sequence.gained > _FEW_TOKENS:
                verdict.innocent.append(sequence)
            elif self._suspect(sequence.request, instance_id):
                twice.setdefault(sequence.request, []).append(sequence)
            else:
                verdict.innocent.append(sequence)
        tried = twice.pop(self._on_trial, None) if self._on_trial is not None else None
        if tried is not None:
            verdict.guilty += tried
            self._on_trial = None
        elif len(twice) == 1:
            verdict.guilty += next(iter(twice.values()))
            twice.clear()
        for request, sequences in twice.items():
            self._sequences.setdefault(request, []).extend(sequences)
            if request not in self._waiting:
                self._waiting.append(request)
        return verdict

    def next_trial(self, is_open: Callable[[object], bool]) -> Sequence[ResumableSequence]:
        """Return the sequences to try now: none while others are on trial (`is_open`), or nobody waits."""
        if self._on_trial is not None and is_open(self._on_trial):
            return ()
        self._on_trial = None
        if not self._waiting:
            return ()
        self._on_trial = self._waiting.popleft()
        return [sequence for sequence in self._sequences.pop(self._on_trial) if not sequence.ended]

    @property
    def trying(self) -> bool:
        """Whether somebody is on trial, or waits for it."""
        return bool(self._waiting) or self._on_trial is not None

    def forget(self, request: object) -> None:
        """Forget a request that has ended."""
        self._records.pop(request, None)

    def _suspect(self, request: object, instance_id: str) -> bool:
        """Make a request suspect; returns whether it was, of another death."""
        now = self._clock()
        deaths = self._records.setdefault(request, _Record()).deaths
        before = any(other != instance_id and now - when <= _WINDOW_S for other, when in deaths.items())
        deaths[instance_id] = now
        return before


def is_undecided(sequence: ResumableSequence) -> bool:
    """Tell whether a sequence on trial has yet to show that it does no harm."""
    return not sequence.ended and sequence.gained <= _FEW_TOKENS
