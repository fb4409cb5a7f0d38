"""The outermost layer of the fleet: what a worker leaves unfinished goes on at another one."""

import asyncio
import functools
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from tokenwire.coordinator.fleet.failover.poison_cache import PoisonCache
from tokenwire.coordinator.fleet.failover.poison_detection import PoisonDetector, Verdict, is_undecided
from tokenwire.coordinator.fleet.failover.recovery import Recovery, can_continue_plausibly, remainder, wants_one_run
from tokenwire.coordinator.fleet.failover.replay import Replay
from tokenwire.coordinator.fleet.failover.sequence import Loss, ResumableRequest, ResumableSequence
from tokenwire.coordinator.fleet.failover.settings import FailoverSettings, FailoverStats
from tokenwire.coordinator.fleet.request_handle import NEW, Fleet, Placement, RequestHandle
from tokenwire.coordinator.fleet.slots import SlotListener
from tokenwire.errors import (
    DeadlyRequest,
    EngineFailed,
    Overloaded,
    TokenwireError,
    Unavailable,
    WorkerLost,
    reply_error,
)
from tokenwire.for_each import for_each
from tokenwire.v1 import inference_pb2 as pb

if TYPE_CHECKING:
    from tokenwire.coordinator.fleet.session import WorkerSession

log = logging.getLogger(__name__)

_TICK_S = 0.05
"""How soon a request is sent again that a worker refused, and how often trials and moves are looked at."""
_MOVED_AT_ONCE = 8

Capabilities = Callable[[str, int], pb.EngineCapabilities]

_LOST = WorkerLost("The worker that generated this reply is gone.", retry_after_s=1)


class Workers(Protocol):
    """What has to be known of all workers; see WorkerPool."""

    def room(self, model: str, adapter_id: int = 0) -> int:
        """Return how many sequences the workers of a model could begin at once."""

    def capabilities(self, model: str, adapter_id: int = 0) -> pb.EngineCapabilities:
        """Return what all workers of a model can."""

    def lives(self, instance_id: str) -> bool | None:
        """Return whether the process of a lost worker still runs; None while that has yet to show."""


class Failover:
    """Wraps listeners so that they never hear of a lost worker, as long as another one can go on."""

    def __init__(self, below: Fleet, settings: FailoverSettings, workers: Workers) -> None:
        self.stats = FailoverStats()
        self._below = below
        self._settings = settings
        self._workers = workers
        self._detector = PoisonDetector(workers.lives)
        self.poison = PoisonCache(workers.lives)
        self._live: set[ResumableSequence] = set()
        self._lost: list[tuple[ResumableSequence, Loss]] = []
        self._draining: list[WorkerSession] = []
        """Workers that stop, as long as they have something that can be moved."""
        self._waiting: list[ResumableSequence] = []
        self._tick: asyncio.TimerHandle | None = None
        self._stopped = False

    def check_open(self, model: str, adapter_id: int) -> None:
        """Check that the layer below would admit one more request."""
        self._below.check_open(model, adapter_id)

    def submit(
        self, model: str, submit: pb.Submit, listeners: Sequence[SlotListener], placement: Placement = NEW
    ) -> RequestHandle:
        """Send a request to a worker of a model, and what is left of it to another one when that is lost."""
        poison = self.poison
        if poison.deaths or poison.refused or poison.journal is not None:
            poison.check(model, submit)
        if not self._settings.attempts:
            return self._below.submit(model, submit, listeners, placement)
        request = ResumableRequest(model, submit, placement)
        sequences = [ResumableSequence(request, index, listener, self) for index, listener in enumerate(listeners)]
        request.sequences, request.running = sequences, len(sequences)
        request.whole = self._below.submit(model, submit, sequences, replace(placement, on_placed=request.on_placed))
        self._live.update(sequence for sequence in sequences if not sequence.ended)
        return request

    def end(self, request_ids: Collection[str] | None) -> int:
        """End requests by their ids, None: all, for which the layers below have done so; returns how many sequences
        ended that no worker had.

        Those that a worker has it ends itself. Should it be lost before it says so, they do not go on elsewhere.
        """
        wanted = [each for each in self._live if request_ids is None or each.request.submit.request_id in request_ids]
        for sequence in wanted:
            sequence.request.aborted = True
        between = [sequence for sequence in wanted if sequence.session is None]
        _each(between, ResumableSequence.end_as_aborted)
        return len(between)

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

    def diverged(self, sequence: ResumableSequence, position: int) -> None:
        """Go on from the tokens that the client has, or end the sequence where that will not do."""
        request = sequence.request
        where = f"a second run of the request differs from the first at token {position}"
        if self._is_exact(request) or not can_continue_plausibly(request.submit.sampling_params):
            message = f"The worker that generated this reply is gone, and {where}: it cannot be continued."
            sequence.end_with(EngineFailed(message))
            return
        log.warning("request %s goes on from its tokens: %s", sequence.request.submit.request_id, where)
        sequence.leave()
        sequence.forked = True
        self._waiting.append(sequence)
        self._schedule()

    def ended(self, sequence: ResumableSequence) -> None:
        """Forget a sequence, and with the last one its request."""
        self._live.discard(sequence)
        request = sequence.request
        request.running -= 1
        if not request.running:
            self._detector.forget(request)

    # What becomes of them.

    def _settle(self) -> None:
        losses = {sequence: loss for sequence, loss in self._lost if not sequence.ended}
        self._lost = []
        dead: dict[tuple[str, bool], list[ResumableSequence]] = {}
        _each(losses, lambda sequence: self._decide(sequence, losses[sequence], dead))
        for_each(dead, lambda death: self._judge(*death, dead[death]))
        self._schedule()

    def _judge(self, instance_id: str, certain: bool, sequences: list[ResumableSequence]) -> None:
        verdict = self._detector.classify(instance_id, sequences, certain)
        log.warning("a worker was lost: %d sequences go on elsewhere", len(verdict.cleared))
        self._carry_out(verdict)

    def _carry_out(self, verdict: Verdict) -> None:
        _each(verdict.poisoned, self._stop_poison)
        _each(verdict.cleared, self._resume)

    def _decide(
        self, sequence: ResumableSequence, loss: Loss, dead: dict[tuple[str, bool], list[ResumableSequence]]
    ) -> None:
        if sequence.request.aborted:
            sequence.end_as_aborted()
        elif self._stopped or sequence.losses > self._settings.attempts or not self._can_resume(sequence):
            self._give_up(sequence)
        elif loss.died:
            dead.setdefault((loss.instance_id, loss.certain), []).append(sequence)
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
        request = sequence.request
        replayed = bool(sequence.token_ids) and self._recovery(sequence) is Recovery.REPLAY
        prefix: Sequence[int] = () if replayed else sequence.token_ids
        rest = remainder(request.submit, sequence.index, prefix, sequence.prompt_scored)
        listener: SlotListener = Replay(sequence, sequence.token_ids[:]) if replayed else sequence
        placement = replace(request.placement, resumed=True, avoid=sequence.avoid, on_placed=sequence.on_placed)
        if prefix and request.submit.sampling_params.HasField("max_tokens") and not rest.sampling_params.max_tokens:
            sequence.end_at_limit()
            return
        try:
            sequence.handle = self._below.submit(request.model, rest, [listener], placement)
        except (Unavailable, Overloaded) as error:
            self._give_up(sequence, error)
            return
        if sequence.token_ids:
            sequence.resumed()
        self.stats.replayed += replayed
        self.stats.resumed += not replayed

    def _is_exact(self, request: ResumableRequest) -> bool:
        """Return whether an error is wanted rather than a reply that no single run has given."""
        policy, params = self._settings.resume, request.submit.sampling_params
        return policy == "exact" or (policy == "auto" and (request.placement.exact or wants_one_run(params)))

    def _recovery(self, sequence: ResumableSequence, capabilities: Capabilities | None = None) -> Recovery:
        """Return how a sequence goes on that has tokens."""
        request, known = sequence.request, capabilities or self._workers.capabilities
        return sequence.recovery(known(request.model, request.submit.lora.id), self._is_exact(request))

    def _can_resume(self, sequence: ResumableSequence) -> bool:
        return not sequence.token_ids or self._recovery(sequence) is not Recovery.NONE

    def _is_movable(self, sequence: ResumableSequence, capabilities: Capabilities) -> bool:
        """Return whether a running sequence goes on elsewhere without the client noticing."""
        continues = not sequence.token_ids or self._recovery(sequence, capabilities) is Recovery.CONTINUE
        return continues and not sequence.request.aborted

    def _schedule(self) -> None:
        work = self._waiting or self._draining or self._detector.retrying
        if self._tick is None and work and not self._stopped:
            self._tick = asyncio.get_running_loop().call_later(_TICK_S, self._look_again)

    def _look_again(self) -> None:
        self._tick = None
        waiting, self._waiting = self._waiting, []
        _each(waiting, self._resume)
        self._draining = [session for session in self._draining if self._move_some(session)]
        self._carry_out(self._detector.review())
        isolated = self._detector.next_isolated_retry(_is_retried_alone)
        for sequence in isolated:
            log.warning("request %s is tried alone: two workers died near it", sequence.request.submit.request_id)
        _each(isolated, self._resume)
        self._schedule()

    def _stop_poison(self, sequence: ResumableSequence) -> None:
        self.stats.poisoned += 1
        log.error("request %s is stopped: the workers that began with it died", sequence.request.submit.request_id)
        request = sequence.request
        self.poison.add(request.model, request.submit)
        sequence.end_with(
            DeadlyRequest("Two workers died when they started this request. It is not retried on a third one.")
        )

    def _move_some(self, session: "WorkerSession") -> bool:
        """Move a few sequences from a worker that stops; returns whether there are more.

        All at once would all wait for the last one's prompt; those that wait their turn get tokens meanwhile.
        """
        capabilities = functools.cache(self._workers.capabilities)  # the same for many sequences, and looked up often
        running = (sequence for sequence in self._live if sequence.session is session)
        movable = list(islice((each for each in running if self._is_movable(each, capabilities)), _MOVED_AT_ONCE))
        rooms: dict[tuple[str, int], int] = {}
        for sequence in movable:
            request = sequence.request
            wanted = request.model, request.submit.lora.id
            rooms[wanted] = rooms.get(wanted, self._workers.room(*wanted)) - 1
            if rooms[wanted] >= 0:
                _each([sequence], lambda sequence: self._move(sequence, session))
        return bool(movable)

    def _move(self, sequence: ResumableSequence, session: "WorkerSession") -> None:
        request = sequence.request
        # Those that began as a whole are moved as a whole: they can only be given up together.
        together = [sequence] if sequence.handle is not None else request.running_whole()
        for each in together:
            each.leave()
        if sequence.handle is not None:
            sequence.handle.abort()
        else:
            request.leave_first_worker()
        for each in together:
            each.avoid |= {session.instance_id}
        _each(together, self._resume)


def _each(sequences: Iterable[ResumableSequence], act: Callable[[ResumableSequence], None]) -> None:
    """Do something with each of many: what one raises ends that one alone."""
    for_each(sequences, act, _break)


def _break(sequence: ResumableSequence, error: Exception) -> None:
    log.error("request %s cannot go on", sequence.request.submit.request_id, exc_info=error)
    sequence.end_with(reply_error(error))


def _is_retried_alone(request: ResumableRequest) -> bool:
    return any(is_undecided(sequence) for sequence in request.sequences)
