"""Who is to blame when workers die: a request that kills each worker that it meets must not meet all of them.

The rule. A worker that dies unforeseen makes *suspects* of the requests that it had just begun with: those that had
got no more than a few tokens from it. A request that is suspect in the deaths of two worker processes within a time is
poisoned if it is the only one, once it is known that these processes do not run any more: a worker whose connection was
cut and that answers again did not die. Where there are several, they are tried one after the other, alone among
suspects, and the one that a worker dies of on its isolated is poisoned. Requests in mid-reply are never suspects.

Its limits: a request that does harm only after more tokens is not found, it ends when its attempts are used up; and one
that was alone in its prefill on two workers that somebody killed within the time is stopped without guilt.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tokenwire.coordinator.fleet.failover.sequence import ResumableRequest, ResumableSequence

_FEW_TOKENS = 4
_WINDOW_S = 60.0
_VERDICT_S = 30.0
"""How long a request waits at most until it is known whether its workers died."""

Lives = Callable[[str], bool | None]
"""Tells whether a worker's process still runs, by its instance id; None while nobody knows."""


@dataclass(slots=True)
class Verdict:
    """What becomes of the sequences that died with a worker."""

    cleared: list[ResumableSequence] = field(default_factory=list)
    """Go on at once."""
    poisoned: list[ResumableSequence] = field(default_factory=list)
    """Are stopped."""


@dataclass(slots=True)
class _Death:
    """A loss that a request was suspect in."""

    when: float
    certain: bool
    """Whether the worker was seen to be dead or to hang; else it is forgiven when its process turns out to live."""


@dataclass(slots=True)
class _Accused:
    """Requests that were suspect in the loss of a worker, and in another one before."""

    instance_id: str
    since: float
    sequences: dict[ResumableRequest, list[ResumableSequence]]
    """By request."""


class PoisonDetector:
    """Remembers who was there when workers died."""

    def __init__(self, lives: Lives = lambda instance_id: False, clock: Callable[[], float] = time.monotonic) -> None:
        """`lives` says whether a worker's process still runs; None: not known yet."""
        self._lives = lives
        self._clock = clock
        self._deaths: dict[ResumableRequest, dict[str, _Death]] = {}
        """By request and worker process."""
        self._accused: list[_Accused] = []
        """Those who wait until it is known whether the workers died."""
        self._waiting: deque[ResumableRequest] = deque()
        self._on_trial: ResumableRequest | None = None
        self._sequences: dict[ResumableRequest, list[ResumableSequence]] = {}
        """Those that wait for their isolated, by request."""

    def judge(self, instance_id: str, lost: Iterable[ResumableSequence], certain: bool = False) -> Verdict:
        """Say who goes on after the loss of a worker, and who is poisoned; the others wait for `review` or a isolated.

        `certain`: it is known already that the worker died.
        """
        certain = certain or self._lives(instance_id) is False
        cleared: list[ResumableSequence] = []
        accused: dict[ResumableRequest, list[ResumableSequence]] = {}
        for sequence in lost:
            if sequence.gained <= _FEW_TOKENS and self._suspect(sequence.request, instance_id, certain):
                accused.setdefault(sequence.request, []).append(sequence)
            else:
                cleared.append(sequence)
        if accused:
            self._accused.append(_Accused(instance_id, self._clock(), accused))
        verdict = self.review()
        return Verdict(cleared + verdict.cleared, verdict.poisoned)

    def review(self) -> Verdict:
        """Say who goes on and who is poisoned of those that wait until it is known whether their workers died."""
        verdict = Verdict()
        self._accused = [accused for accused in self._accused if not self._decide(accused, verdict)]
        return verdict

    def _decide(self, accused: _Accused, verdict: Verdict) -> bool:
        """Decide if everything is known that matters, or it took too long; returns whether it was."""
        for request, sequences in list(accused.sequences.items()):
            sequences[:] = [sequence for sequence in sequences if not sequence.ended]
            if not sequences or self._is_cleared(request, accused.instance_id):
                verdict.cleared += accused.sequences.pop(request)
        in_time = self._clock() - accused.since <= _VERDICT_S
        if in_time and not all(map(self._is_certain, accused.sequences)):
            return False
        twice = accused.sequences
        tried = twice.pop(self._on_trial, None) if self._on_trial is not None else None
        if tried is not None:
            verdict.poisoned += tried
            self._on_trial = None
        elif len(twice) == 1:
            verdict.poisoned += next(iter(twice.values()))
            twice.clear()
        for request, sequences in twice.items():
            self._sequences.setdefault(request, []).extend(sequences)
            if request not in self._waiting:
                self._waiting.append(request)
        return True

    def next_isolated_retry(self, is_open: Callable[[ResumableRequest], bool]) -> Sequence[ResumableSequence]:
        """Return the sequences to try now: none while others are on isolated (`is_open`), or nobody waits."""
        if self._on_trial is not None and is_open(self._on_trial):
            return ()
        self._on_trial = None
        if not self._waiting:
            return ()
        self._on_trial = self._waiting.popleft()
        return [sequence for sequence in self._sequences.pop(self._on_trial) if not sequence.ended]

    @property
    def retrying(self) -> bool:
        """Whether somebody is on isolated, or waits for it or for a verdict."""
        return bool(self._waiting) or bool(self._accused) or self._on_trial is not None

    def forget(self, request: ResumableRequest) -> None:
        """Forget a request that has ended."""
        self._deaths.pop(request, None)

    def _suspect(self, request: ResumableRequest, instance_id: str, certain: bool) -> bool:
        """Make a request suspect; returns whether it was, of another death."""
        now = self._clock()
        deaths = self._deaths.setdefault(request, {})
        before = any(other != instance_id and now - death.when <= _WINDOW_S for other, death in deaths.items())
        deaths[instance_id] = _Death(now, certain)
        return before

    def _is_cleared(self, request: ResumableRequest, instance_id: str) -> bool:
        """Forgive what was no death; returns whether the loss of this worker was none, or the only one."""
        deaths = self._deaths[request]
        for other in [other for other, death in deaths.items() if not death.certain and self._lives(other)]:
            del deaths[other]
        last = deaths.get(instance_id)
        return last is None or sum(last.when - death.when <= _WINDOW_S for death in deaths.values()) < 2

    def _is_certain(self, request: ResumableRequest) -> bool:
        return all(death.certain or self._lives(other) is False for other, death in self._deaths[request].items())


def is_undecided(sequence: ResumableSequence) -> bool:
    """Tell whether a sequence on isolated has yet to show that it does no harm."""
    return not sequence.ended and sequence.gained <= _FEW_TOKENS
