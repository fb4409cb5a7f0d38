"""Detects poison requests: one that kills every worker that starts it must not be resumed on all of them.

When a worker dies, the requests that it had just started (with at most a few tokens) are *suspects*. A request that
is suspect in the deaths of two worker processes within a time window is poison if it is the only one, once these
processes are known to be gone: a worker whose connection was cut and that responds again did not die. If there are
several, they are retried one after the other, isolated from the other suspects, and one is poison if a worker dies
of its isolated retry. Requests in mid-reply are never suspects. A worker that dies before it has served a few requests,
or dies with other ones each time, may fail for everybody, so two such deaths are not enough: see `incriminates`.

Limits: a request that is harmful only after more tokens is not detected, and ends when its attempts are used up; and
one that was alone in its prefill on two workers that were killed from outside within the window is a false positive.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tokenwire.coordinator.fleet.failover.sequence import ResumableRequest, ResumableSequence

_FEW_TOKENS = 4
_DEATHS_OF_PROVEN = 2
_DEATHS_OF_ANY = 3
_WINDOW_S = 60.0
_DECISION_S = 30.0
"""Maximum time for which a suspect waits until it is known whether its workers died."""

IsAlive = Callable[[str], bool | None]
"""Returns whether a worker's process still runs, by its instance id; None while unknown."""


@dataclass(slots=True)
class Verdict:
    """The decision on the sequences of a lost worker."""

    cleared: list[ResumableSequence] = field(default_factory=list)
    """Are resumed at once."""
    poison: list[ResumableSequence] = field(default_factory=list)
    """Are stopped."""


@dataclass(slots=True)
class _Death:
    """A death in which a request is suspect."""

    when: float
    certain: bool
    """Whether the worker is known to be dead or to hang; else it is dropped if its process turns out to live."""
    unproven_at: str
    """The address of a worker that may fail for everybody; else empty."""


@dataclass(slots=True)
class _Suspects:
    """Requests that are suspect in the loss of a worker and in an earlier one."""

    instance_id: str
    since: float
    sequences: dict[ResumableRequest, list[ResumableSequence]]
    """By request."""


def incriminates(unproven_at: Iterable[str]) -> bool:
    """Return whether so many deaths make a request poison, if it is the only one that they have in common.

    Of each death: the address of a worker that may fail for everybody, else an empty string. One that does so again and
    again is one such worker.
    """
    deaths = list(unproven_at)
    proven = deaths.count("")
    return proven >= _DEATHS_OF_PROVEN or proven + len(set(deaths) - {""}) >= _DEATHS_OF_ANY


class PoisonDetector:
    """Tracks the suspects of worker deaths."""

    def __init__(
        self, is_alive: IsAlive = lambda instance_id: False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`is_alive` returns whether a worker's process still runs; None: not known yet."""
        self._is_alive = is_alive
        self._clock = clock
        self._deaths: dict[ResumableRequest, dict[str, _Death]] = {}
        """By request and worker process."""
        self._undecided: list[_Suspects] = []
        """Those that wait until it is known whether the workers died."""
        self._waiting: deque[ResumableRequest] = deque()
        self._isolated: ResumableRequest | None = None
        self._sequences: dict[ResumableRequest, list[ResumableSequence]] = {}
        """Those that wait for their isolated retry, by request."""

    def classify(
        self, instance_id: str, lost: Iterable[ResumableSequence], certain: bool = False, unproven_at: str = ""
    ) -> Verdict:
        """Return which sequences of a lost worker are resumed and which are poison; the others wait.

        They wait for `review` or an isolated retry. `certain`: the worker is already known to be dead. `unproven_at`:
        its address, if it may fail for everybody.
        """
        certain = certain or self._is_alive(instance_id) is False
        cleared: list[ResumableSequence] = []
        suspects: dict[ResumableRequest, list[ResumableSequence]] = {}
        for sequence in lost:
            if sequence.gained <= _FEW_TOKENS and self._suspect(
                sequence.request, instance_id, _Death(self._clock(), certain, unproven_at)
            ):
                suspects.setdefault(sequence.request, []).append(sequence)
            else:
                cleared.append(sequence)
        if suspects:
            self._undecided.append(_Suspects(instance_id, self._clock(), suspects))
        verdict = self.review()
        return Verdict(cleared + verdict.cleared, verdict.poison)

    def review(self) -> Verdict:
        """Decide on the sequences that wait until it is known whether their workers died."""
        verdict = Verdict()
        self._undecided = [suspects for suspects in self._undecided if not self._decide(suspects, verdict)]
        return verdict

    def _decide(self, suspects: _Suspects, verdict: Verdict) -> bool:
        """Decide if all that is needed is known, or the time is over; return whether it was decided."""
        for request, sequences in list(suspects.sequences.items()):
            sequences[:] = [sequence for sequence in sequences if not sequence.ended]
            if not sequences or self._is_cleared(request, suspects.instance_id):
                verdict.cleared += suspects.sequences.pop(request)
        in_time = self._clock() - suspects.since <= _DECISION_S
        if in_time and not all(map(self._is_certain, suspects.sequences)):
            return False
        twice = suspects.sequences
        retried = twice.pop(self._isolated, None) if self._isolated is not None else None
        if retried is not None:
            verdict.poison += retried
            self._isolated = None
        elif len(twice) == 1:
            verdict.poison += next(iter(twice.values()))
            twice.clear()
        for request, sequences in twice.items():
            self._sequences.setdefault(request, []).extend(sequences)
            if request not in self._waiting:
                self._waiting.append(request)
        return True

    def next_isolated_retry(self, is_open: Callable[[ResumableRequest], bool]) -> Sequence[ResumableSequence]:
        """Return the sequences to retry now: none during another isolated retry (`is_open`), or if none wait."""
        if self._isolated is not None and is_open(self._isolated):
            return ()
        self._isolated = None
        if not self._waiting:
            return ()
        self._isolated = self._waiting.popleft()
        return [sequence for sequence in self._sequences.pop(self._isolated) if not sequence.ended]

    @property
    def retrying(self) -> bool:
        """Whether there is an isolated retry, or requests wait for one or for a decision."""
        return bool(self._waiting) or bool(self._undecided) or self._isolated is not None

    def discard(self, request: ResumableRequest) -> None:
        """Remove a request that has ended."""
        self._deaths.pop(request, None)

    def _suspect(self, request: ResumableRequest, instance_id: str, last: _Death) -> bool:
        """Record a request as suspect; return whether it already was in another death."""
        deaths = self._deaths.setdefault(request, {})
        before = any(other != instance_id and last.when - death.when <= _WINDOW_S for other, death in deaths.items())
        deaths[instance_id] = last
        return before

    def _is_cleared(self, request: ResumableRequest, instance_id: str) -> bool:
        """Drop losses that were not deaths; return whether the loss of this worker was not, or too few others were."""
        deaths = self._deaths[request]
        for other in [other for other, death in deaths.items() if not death.certain and self._is_alive(other)]:
            del deaths[other]
        last = deaths.get(instance_id)
        if last is None or (request is self._isolated and last.unproven_at):
            return True  # such a worker's death does not answer whether an isolated request is harmful
        return not incriminates(death.unproven_at for death in deaths.values() if last.when - death.when <= _WINDOW_S)

    def _is_certain(self, request: ResumableRequest) -> bool:
        return all(death.certain or self._is_alive(other) is False for other, death in self._deaths[request].items())


def is_undecided(sequence: ResumableSequence) -> bool:
    """Return whether a sequence in an isolated retry has not yet been shown to be harmless."""
    return not sequence.ended and sequence.gained <= _FEW_TOKENS
