"""The outermost layer of the fleet: what a worker leaves unfinished goes on at another one."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from coordinator.each import for_each
from coordinator.fleet.failover.recovery import Recovery, recovery_of, remainder, repeatable
from coordinator.fleet.failover.replay import Replay
from coordinator.fleet.failover.sequence import Loss, ResumableSequence
from coordinator.fleet.failover.settings import FailoverSettings, FailoverStats
from coordinator.fleet.failover.suspicion import Suspicion, is_undecided
from coordinator.fleet.slots import SlotListener
from coordinator.fleet.submission import NEW, Fleet, Placement, Submission
from tokenwire.errors import EngineFailed, Overloaded, TokenwireError, Unavailable, WorkerLost, reply_error
from tokenwire.v1 import inference_pb2 as pb

if TYPE_CHECKING:
    from coordinator.fleet.session import WorkerSession

log = logging.getLogger(__name__)

_TICK_S = 0.05
"""How soon a request is sent again that a worker refused, and how often trials and moves are looked at."""
_MOVED_AT_ONCE = 8
_LOST = WorkerLost("The worker that generated this reply is gone.", retry_after_s=1)


class ResumableRequest:
    """One submitted request and its sequences, each of which goes on by itself once it was lost."""

    __slots__ = ("_whole", "model", "placement", "recovery", "running", "sequences", "submit")

    def __init__(self, model: str, submit: pb.Submit, placement: Placement) -> None:
        self.model = model
        self.submit = submit
        self.placement = placement
        self.recovery = recovery_of(submit.sampling_params)
        self.sequences: Sequence[ResumableSequence] = ()
        self.running = 0
        """Sequences that have not ended."""
        self._whole: Submission | None = None

    def begin(self, below: Fleet) -> None:
        """Submit it as it is. Raises Unavailable or Overloaded."""
        placement = replace(self.placement, placed=self._placed)
        self._whole = below.submit(self.model, self.submit, self.sequences, placement)

    def abort(self) -> None:
        """End whatever still runs. Safe at any time, more than once."""
        self.leave_first_worker()
        for sequence in self.sequences:
            if sequence.submission is not None:
                sequence.submission.abort()
            sequence.abandon()

    def running_whole(self) -> list[ResumableSequence]:
        """Return the sequences that still run where the whole began."""
        return [
            sequence
            for sequence in self.sequences
            if sequence.submission is None and sequence.session is not None and not sequence.ended
        ]

    def leave_first_worker(self) -> None:
        """End what still runs of it as a whole."""
        if self._whole is not None:
            self._whole.abort()

    def explain(self) -> str:
        """Say which worker has it and why, and what it was lost with."""
        own = [sequence.submission for sequence in self.sequences if sequence.submission is not None]
        whole = [self._whole] if self._whole is not None else []
        said = ", ".join(part.explain() for part in own or whole)
        losses = sum(sequence.losses for sequence in self.sequences)
        return f"{said}; lost {losses} times" if losses else said

    def _placed(self, session: "WorkerSession") -> None:
        for sequence in self.sequences:
            sequence.placed(session)


class Failover:
    """Wraps listeners so that they never hear of a lost worker, as long as another one can go on."""

    def __init__(self, below: Fleet, settings: FailoverSettings, room: Callable[[str, int], int]) -> None:
        """`room` says how many sequences the workers of a model (and an adapter of it) could begin at once."""
        self.stats = FailoverStats()
        self._below = below
        self._settings = settings
        self._room = room
        self._suspicion = Suspicion()
        self._live: set[ResumableSequence] = set()
        self._lost: list[tuple[ResumableSequence, Loss]] = []
        self._draining: list[WorkerSession] = []
        """Workers that stop, as long as they have something that can be moved."""
        self._waiting: list[ResumableSequence] = []
        self._tick: asyncio.TimerHandle | None = None
        self._stopped = False

    def submit(
        self, model: str, submit: pb.Submit, listeners: Sequence[SlotListener], placement: Placement = NEW
    ) -> Submission:
        """Send a request to a worker of a model, and what is left of it to another one when that is lost."""
        if not self._settings.attempts:
            return self._below.submit(model, submit, listeners, placement)
        request = ResumableRequest(model, repeatable(submit), placement)
        sequences = [ResumableSequence(request, index, listener, self) for index, listener in enumerate(listeners)]
        request.sequences, request.running = sequences, len(sequences)
        request.begin(self._below)
        self._live.update(sequence for sequence in sequences if not sequence.ended)
        return request

    def stop(self) -> None:
        """Go on with nothing any more."""
        self._stopped = True
        if self._tick is not None:
            self._tick.cancel()

    def drained(self, session: "WorkerSession") -> None:
        """Move what a worker has that stops, as far as it goes on elsewhere without the client noticing."""
        if not self._stopped and session not in self._draining:
            self._draining.append(session)
            self._schedule()

    # What sequences say.

    def lost(self, sequence: ResumableSequence, loss: Loss) -> None:
        """Decide when all of the worker's sequences are known that were lost with this one."""
        if not self._lost:
            asyncio.get_running_loop().call_soon(self._settle)
        self._lost.append((sequence, loss))

    def ended(self, sequence: ResumableSequence) -> None:
        """Forget a sequence, and with the last one its request."""
        self._live.discard(sequence)
        request = _request_of(sequence)
        request.running -= 1
        if not request.running:
            self._suspicion.forget(request)

    # What becomes of them.

    def _settle(self) -> None:
        losses = {sequence: loss for sequence, loss in self._lost if not sequence.ended}
        self._lost = []
        dead: dict[str, list[ResumableSequence]] = {}
        _each(losses, lambda sequence: self._decide(sequence, losses[sequence], dead))
        for_each(dead, lambda instance_id: self._judge(instance_id, dead[instance_id]))
        self._schedule()

    def _judge(self, instance_id: str, sequences: list[ResumableSequence]) -> None:
        verdict = self._suspicion.judge(instance_id, sequences)
        log.warning("a worker died: %d sequences go on elsewhere", len(verdict.innocent))
        _each(verdict.guilty, self._stop_poison)
        _each(verdict.innocent, self._resume)

    def _decide(self, sequence: ResumableSequence, loss: Loss, dead: dict[str, list[ResumableSequence]]) -> None:
        if self._stopped or sequence.losses > self._settings.attempts or not _can_resume(sequence):
            self._give_up(sequence)
        elif loss.died:
            dead.setdefault(loss.instance_id, []).append(sequence)
        elif loss.refused:
            self._waiting.append(sequence)
        else:
            self._resume(sequence)

    def _give_up(self, sequence: ResumableSequence, error: TokenwireError = _LOST) -> None:
        self.stats.failed += 1
        sequence.give_up(error)

    def _resume(self, sequence: ResumableSequence) -> None:
        if sequence.ended:
            return
        request = _request_of(sequence)
        replayed = request.recovery is Recovery.REPLAY and bool(sequence.token_ids)
        prefix: Sequence[int] = () if replayed else sequence.token_ids
        rest = remainder(request.submit, sequence.index, prefix, sequence.prompt_scored)
        listener: SlotListener = Replay(sequence, sequence.token_ids[:]) if replayed else sequence
        placement = replace(request.placement, resumed=True, avoid=sequence.avoid, placed=sequence.placed)
        if prefix and request.submit.sampling_params.HasField("max_tokens") and not rest.sampling_params.max_tokens:
            sequence.end_at_limit()
            return
        try:
            sequence.submission = self._below.submit(request.model, rest, [listener], placement)
        except (Unavailable, Overloaded) as error:
            self._give_up(sequence, error)
            return
        self.stats.replayed += replayed
        self.stats.resumed += not replayed

    def _schedule(self) -> None:
        work = self._waiting or self._draining or self._suspicion.trying
        if self._tick is None and work and not self._stopped:
            self._tick = asyncio.get_running_loop().call_later(_TICK_S, self._look_again)

    def _look_again(self) -> None:
        self._tick = None
        waiting, self._waiting = self._waiting, []
        _each(waiting, self._resume)
        self._draining = [session for session in self._draining if self._move_some(session)]
        trial = self._suspicion.next_trial(_is_on_trial)
        for sequence in trial:
            log.warning("request %s is tried alone: two workers died near it", _name(sequence))
        _each(trial, self._resume)
        self._schedule()

    def _stop_poison(self, sequence: ResumableSequence) -> None:
        self.stats.poisoned += 1
        log.error("request %s is stopped: the workers that began with it died", _name(sequence))
        sequence.end_with(
            EngineFailed("Two workers died when they began with this request. It is not tried on a third one.")
        )

    def _move_some(self, session: "WorkerSession") -> bool:
        """Move a few sequences from a worker that stops; returns whether there are more.

        All at once would all wait for the last one's prompt; those that wait their turn get tokens meanwhile.
        """
        movable = [sequence for sequence in self._live if sequence.session is session and _is_movable(sequence)]
        rooms: dict[tuple[str, int], int] = {}
        for sequence in movable[:_MOVED_AT_ONCE]:
            request = _request_of(sequence)
            wanted = request.model, request.submit.lora.id
            rooms[wanted] = rooms.get(wanted, self._room(*wanted)) - 1
            if rooms[wanted] >= 0:
                _each([sequence], lambda sequence: self._move(sequence, session))
        return bool(movable)

    def _move(self, sequence: ResumableSequence, session: "WorkerSession") -> None:
        request = _request_of(sequence)
        # Those that began as a whole are moved as a whole: they can only be given up together.
        together = [sequence] if sequence.submission is not None else request.running_whole()
        for each in together:
            each.leave()
        if sequence.submission is not None:
            sequence.submission.abort()
        else:
            request.leave_first_worker()
        for each in together:
            each.avoid |= {session.instance_id}
        _each(together, self._resume)


def _each(sequences: Iterable[ResumableSequence], act: Callable[[ResumableSequence], None]) -> None:
    """Do something with each of many: what one raises ends that one alone."""
    for_each(sequences, act, _break)


def _break(sequence: ResumableSequence, error: Exception) -> None:
    log.error("request %s cannot go on", _name(sequence), exc_info=error)
    sequence.end_with(reply_error(error))


def _request_of(sequence: ResumableSequence) -> ResumableRequest:
    request = sequence.request
    assert isinstance(request, ResumableRequest)
    return request


def _can_resume(sequence: ResumableSequence) -> bool:
    return _request_of(sequence).recovery is not Recovery.NONE or not sequence.token_ids


def _is_movable(sequence: ResumableSequence) -> bool:
    return _request_of(sequence).recovery is Recovery.CONTINUE or not sequence.token_ids


def _is_on_trial(request: object) -> bool:
    assert isinstance(request, ResumableRequest)
    return any(is_undecided(sequence) for sequence in request.sequences)


def _name(sequence: ResumableSequence) -> str:
    return _request_of(sequence).submit.request_id
