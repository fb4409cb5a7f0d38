"""The outermost layer of the fleet: resumes the sequences of lost and draining workers on others.

One class beyond the usual length, since losses, drains, aborts and submissions walk over the same sequences.
"""

import asyncio
import functools
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from tokenwire.coordinator.fleet.failover.poison_cache import PoisonCache
from tokenwire.coordinator.fleet.failover.poison_detection import PoisonDetector, Verdict, is_undecided
from tokenwire.coordinator.fleet.failover.poison_journal import PoisonJournal
from tokenwire.coordinator.fleet.failover.preemption import choose, late_in_engines
from tokenwire.coordinator.fleet.failover.recovery import (
    Recovery,
    can_continue_plausibly,
    keeps_place,
    needs_single_run,
    remainder,
)
from tokenwire.coordinator.fleet.failover.replay import Replay
from tokenwire.coordinator.fleet.failover.sequence import Loss, ResumableRequest, ResumableSequence
from tokenwire.coordinator.fleet.failover.settings import FailoverSettings, FailoverStats
from tokenwire.coordinator.fleet.pool_listener import PoolListener
from tokenwire.coordinator.fleet.request_handle import (
    NEW,
    ChoiceHandle,
    Fleet,
    LateTenant,
    Placement,
    SubmissionHandle,
)
from tokenwire.coordinator.fleet.slots import SlotListener
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.errors import (
    EngineFailed,
    Overloaded,
    PoisonRequest,
    RevisionLost,
    TokenwireError,
    Unavailable,
    WorkerLost,
    reply_error,
)
from tokenwire.process.for_each import for_each
from tokenwire.protocol.model_revision import ModelRevision
from tokenwire.v1 import inference_pb2 as pb

if TYPE_CHECKING:
    from tokenwire.coordinator.fleet.session import WorkerSession

log = logging.getLogger(__name__)

_TICK_S = 0.05
"""Interval for resending refused requests, deciding on suspects and moving sequences off draining workers."""
_MOVED_AT_ONCE = 8
_LATE_CHECK_S = 1.0

_WorkerDeath = tuple[str, bool, str]
"""Of a worker: its instance id, whether it is certain, and its address if it may fail for everybody."""
Capabilities = Callable[[str, int, ModelRevision | None, str], pb.EngineCapabilities]

_NO_CAPABILITIES = pb.EngineCapabilities()
_LOST = WorkerLost("The worker that generated this reply was lost.", retry_after_s=1)


class FailoverWorkers(Protocol):
    """What failover needs of the workers; see WorkerPool."""

    def free_capacity(
        self, model: str, adapter_id: int = 0, revision: ModelRevision | None = None, seeded_noise: str = ""
    ) -> int:
        """Return the free capacity of a model's workers (of a revision, with a noise), in sequences."""

    def capabilities(
        self, model: str, adapter_id: int = 0, revision: ModelRevision | None = None, seeded_noise: str = ""
    ) -> pb.EngineCapabilities:
        """Return the capabilities common to a model's workers (of a revision, with a noise)."""

    def draws(self, model: str, adapter_id: int, revision: ModelRevision | None, seeded_noise: str) -> bool:
        """Return whether a worker of a model (of a revision) that draws with a noise can take a request now."""

    def has_other(self, model: str, adapter_id: int, revision: ModelRevision | None, than: Collection[str]) -> bool:
        """Return whether a worker of a model (of a revision) can take a request now, other than at these addresses."""

    def is_alive(self, instance_id: str) -> bool | None:
        """Return whether the process of a lost worker still runs; None while unknown."""


class AdmissionLayer(Fleet, Protocol):
    """The layer below; see AdmissionQueue."""

    def submit(
        self, model: str, submission: Submission, listeners: Sequence[SlotListener], placement: Placement = NEW
    ) -> SubmissionHandle:
        """Send a request to workers of a model, in parts if need be."""

    def read_work(self) -> None:
        """Count what sequences have done, before some of them go on elsewhere."""

    def late(self, after_s: float) -> Sequence[LateTenant]:
        """Return the tenants whose requests are next and have waited for so long."""


class Failover(PoolListener):
    """Wraps listeners so that a lost worker does not affect them, as long as another one can resume."""

    def __init__(
        self,
        below: AdmissionLayer,
        settings: FailoverSettings,
        workers: FailoverWorkers,
        journal: PoisonJournal | None = None,
        has_tenants: Callable[[], bool] = lambda: False,
    ) -> None:
        """`has_tenants` returns whether there may be requests of several tenants, whoever has sent any yet."""
        self.stats = FailoverStats()
        self._below = below
        self._settings = settings
        self._workers = workers
        self._has_tenants = has_tenants
        self._last_tenant = ""
        self._shared = has_tenants()
        """Whether there are others than the tenant of the last request, or there were."""
        self._detector = PoisonDetector(workers.is_alive)
        self.poison_cache = PoisonCache(workers.is_alive, journal=journal)
        self.live: dict[ResumableSequence, None] = {}
        """Sequences that have not ended, in order of submission."""
        self._lost: list[tuple[ResumableSequence, Loss]] = []
        self._draining: list[WorkerSession] = []
        """Draining and ejected workers with sequences that can be moved."""
        self._waiting: list[ResumableSequence] = []
        self._tick: asyncio.TimerHandle | None = None
        self._late_check: asyncio.TimerHandle | None = None
        self._stopped = False

    def check_open(self, model: str, adapter_id: int, placement: Placement = NEW, sequences: int = 1) -> None:
        """Check that the queue would admit one more request of a tenant."""
        self._below.check_open(model, adapter_id, placement, sequences)

    def submit(
        self, model: str, submission: Submission, listeners: Sequence[SlotListener], placement: Placement = NEW
    ) -> ChoiceHandle:
        """Send a request to a worker of a model, and its remainder to another one when that is lost."""
        if self._is_shared(placement):
            kept = self._keeps_place(model, submission, placement)
            placement = replace(placement, shared=True, keeps_place=kept)
        self.poison_cache.check(model, submission)
        if not self._settings.attempts and not submission.sampled:  # a sequence keeps what is recorded
            return self._below.submit(model, submission, listeners, placement)
        request = ResumableRequest(model, submission, placement)
        sequences = request.listen(listeners, self)
        placement = replace(placement, on_placed=request.on_placed)
        request.handle = self._below.submit(model, submission, sequences, placement)
        for sequence in sequences:
            if not sequence.ended:
                self.live[sequence] = None
        self._check_late_soon()
        return request

    def abort(self, request_ids: Collection[str] | None) -> int:
        """Abort requests by their ids (None: all) after the layers below; return how many sequences without a worker
        ended.

        The other sequences are ended by their workers. Should a worker be lost first, they are not resumed.
        """
        return self._abort(lambda each: request_ids is None or each.submission.request_id in request_ids)

    def abort_running(self, model: str) -> None:
        """Abort all requests of a model that were sent to a worker, before all of its workers do so.

        Should a worker be lost before its sequences end, they are not resumed. Those between two workers end at once.
        """
        self._abort(lambda each: each.model == model and each.sent_at is not None)

    def stop(self) -> None:
        """Resume nothing from now on."""
        self._stopped = True
        for timer in (self._tick, self._late_check):
            if timer is not None:
                timer.cancel()

    def on_worker_draining(self, session: "WorkerSession") -> None:
        """Move the sequences of a draining worker that can continue elsewhere without a visible effect."""
        if not self._stopped and session not in self._draining:
            self._draining.append(session)
            self._schedule()

    def on_worker_ejected(self, session: "WorkerSession") -> None:
        """Move its sequences as those of a draining worker."""
        self.on_worker_draining(session)

    def on_worker_readmitted(self, session: "WorkerSession") -> None:
        """Leave those that it still has."""
        if session in self._draining and not session.worker_drains:
            self._draining.remove(session)

    # Callbacks of the sequences.

    def on_lost(self, sequence: ResumableSequence, loss: Loss) -> None:
        """Schedule a decision for when all sequences lost with the same worker are known."""
        if not self._lost:
            asyncio.get_running_loop().call_soon(self._process_losses)
        self._lost.append((sequence, loss))

    def on_diverged(self, sequence: ResumableSequence, position: int) -> None:
        """Continue from the tokens that the client has, or end the sequence where that is not valid."""
        request = sequence.request
        where = f"a second run of the request differs from the first at token {position}"
        if self._is_exact(request) or not can_continue_plausibly(request.submission.sampling_params):
            message = f"The worker that generated this reply was lost, and {where}: it cannot be continued."
            sequence.end_with(EngineFailed(message))
            return
        log.warning("request %s continues from its tokens: %s", sequence.request.submission.request_id, where)
        sequence.detach()
        sequence.forked = True
        self._waiting.append(sequence)
        self._schedule()

    def has_other(self, sequence: ResumableSequence) -> bool:
        """Return whether to try a worker that has not failed the sequence, at most as many as losses are survived."""
        if self._stopped or len(sequence.failed_at) >= self._settings.attempts or sequence.session is None:
            return False
        request, tried = sequence.request, {each.address for each in (*sequence.failed_at, sequence.session)}
        return self._workers.has_other(request.model, request.submission.lora.id, self._revision(sequence), tried)

    def on_ended(self, sequence: ResumableSequence) -> None:
        """Drop a sequence, and its request with the last one."""
        self.live.pop(sequence, None)
        request = sequence.request
        request.running -= 1
        assert request.running >= 0, "a sequence ended twice"
        if not request.running:
            self._detector.discard(request)

    # Decisions.

    def _abort(self, selects: Callable[[ResumableRequest], bool]) -> int:
        found = [sequence for sequence in self.live if selects(sequence.request)]
        for request in dict.fromkeys(sequence.request for sequence in found):
            request.aborted = True
            request.abort_first_submission_on(None)
        unplaced = [sequence for sequence in found if sequence.session is None]
        _each(unplaced, ResumableSequence.end_as_aborted)
        return len(unplaced)

    def _process_losses(self) -> None:
        losses = {sequence: loss for sequence, loss in self._lost if not sequence.ended}
        self._lost = []
        self._below.read_work()
        deaths: dict[_WorkerDeath, list[ResumableSequence]] = {}
        _each(losses, lambda sequence: self._decide(sequence, losses[sequence], deaths))
        for_each(deaths, lambda death: self._on_death(*death, deaths[death]))
        self._schedule()

    def _on_death(self, instance_id: str, certain: bool, unproven_at: str, sequences: list[ResumableSequence]) -> None:
        verdict = self._detector.classify(instance_id, sequences, certain, unproven_at)
        log.warning("worker instance %s lost: resuming %d sequence(s) elsewhere", instance_id, len(verdict.cleared))
        self._apply(verdict)

    def _apply(self, verdict: Verdict) -> None:
        _each(verdict.poison, self._stop_poison)
        _each(verdict.cleared, self._resume)

    def _decide(
        self, sequence: ResumableSequence, loss: Loss, deaths: dict[_WorkerDeath, list[ResumableSequence]]
    ) -> None:
        """Resume or end a lost sequence, or add it to the deaths that the detector classifies."""
        if sequence.request.aborted:
            sequence.end_as_aborted()
        elif self._stopped or sequence.losses > self._settings.attempts or not self._can_resume(sequence):
            self._give_up(sequence)
        elif loss.died:
            deaths.setdefault((loss.instance_id, loss.certain, loss.unproven_at), []).append(sequence)
        elif loss.refused:
            self._waiting.append(sequence)
        else:
            self._resume(sequence)

    def _give_up(self, sequence: ResumableSequence, error: TokenwireError = _LOST) -> None:
        self.stats.failed += 1
        sequence.give_up(error)

    def _resume(self, sequence: ResumableSequence, preempted: bool = False) -> None:
        if sequence.ended:
            return
        request = sequence.request
        replayed = bool(sequence.token_ids) and self._recovery(sequence) is Recovery.REPLAY
        prefix: Sequence[int] = () if replayed else sequence.token_ids
        rest = remainder(request.submission, sequence.index, prefix, sequence.prompt_scored)
        replay = Replay(sequence, sequence.token_ids[:] if replayed else sequence.token_ids[:0])
        may_differ = bool(prefix) and sequence.recovery(_NO_CAPABILITIES, self._is_exact(request)) is Recovery.REPLAY
        placement = replace(
            request.placement,
            resumed=not preempted,
            preempted=preempted,
            avoid=sequence.avoid,
            failed_at=sequence.tried_at,
            revision=self._revision(sequence),
            begun=request.placement.begun or request.has_output,
            seeded_noise=self._noise_needed(sequence),
            on_placed=functools.partial(self._on_placed, sequence, replay) if may_differ else request.on_resumed,
        )
        if prefix and rest.max_tokens == 0:
            sequence.end_at_limit()
            return
        if sequence.handle is not None:
            sequence.handle.abort()  # its worker is lost, or it was aborted there: the handle has ended
        try:
            listener = replay if replayed or may_differ else sequence
            sequence.handle = self._below.submit(request.model, rest, [listener], placement)
        except RevisionLost as error:
            self.stats.failed += 1
            sequence.end_with(error)
            return
        except (Unavailable, Overloaded) as error:
            self._give_up(sequence, error)
            return
        if sequence.token_ids:
            sequence.resumed()
        self.stats.replayed += replayed
        self.stats.resumed += not (replayed or preempted)
        self.stats.preempted += preempted

    def _on_placed(
        self, sequence: ResumableSequence, replay: Replay, session: "WorkerSession", submission: Submission, count: int
    ) -> None:
        """Let a worker replay a sequence that it would continue differently: it has come since this was decided."""
        request = sequence.request
        if sequence.recovery(session.capabilities, self._is_exact(request)) is Recovery.REPLAY:
            whole = remainder(request.submission, sequence.index, (), sequence.prompt_scored)
            submission.prompt_token_ids, submission.max_tokens = whole.prompt_token_ids, whole.max_tokens
            submission.sampling_params = whole.sampling_params
            replay.expect(sequence.token_ids[:])
        request.on_resumed(session, submission, count)

    def _is_exact(self, request: ResumableRequest) -> bool:
        return self._needs_exactness(request.submission.sampling_params, request.placement)

    def _needs_exactness(self, params: pb.SamplingParams, placement: Placement) -> bool:
        """Return whether to prefer an error to a reply that no single run has generated."""
        policy = self._settings.resume
        return policy == "exact" or (policy == "auto" and (placement.exact or needs_single_run(params)))

    def _is_shared(self, placement: Placement) -> bool:
        """Return whether places are taken back, since tenants share the workers."""
        if placement.tenant != self._last_tenant:
            self._shared |= bool(self._last_tenant)
            self._last_tenant = placement.tenant
        return self._shared and bool(self._settings.preempt_after_s)

    def _keeps_place(self, model: str, submission: Submission, placement: Placement) -> bool:
        """Return whether the replies of a request cannot be taken back."""
        if not self._settings.attempts:
            return True
        params = submission.sampling_params
        engines = self._workers.capabilities(model, submission.lora.id, placement.revision)
        return keeps_place(params, engines, self._needs_exactness(params, placement))

    def _recovery(self, sequence: ResumableSequence, capabilities: Capabilities | None = None) -> Recovery:
        """Return how a sequence with tokens is resumed; `capabilities` defaults to those of the workers."""
        request, capabilities = sequence.request, capabilities or self._workers.capabilities
        revision, noise = self._revision(sequence), sequence.seeded_noise
        workers = capabilities(request.model, request.submission.lora.id, revision, noise)
        return sequence.recovery(workers, self._is_exact(request))

    def _revision(self, sequence: ResumableSequence) -> ModelRevision | None:
        """Return the revision whose workers may resume a sequence."""
        request = sequence.request
        return sequence.revision if request.has_output else request.placement.revision

    def _can_resume(self, sequence: ResumableSequence) -> bool:
        return not sequence.token_ids or self._recovery(sequence) is not Recovery.NONE

    def _noise_needed(self, sequence: ResumableSequence) -> str:
        """Return the noise of the workers that may resume a seeded sequence; empty for any.

        One that may go on with other tokens waits for no worker that is not there.
        """
        request, noise = sequence.request, sequence.seeded_noise
        if not noise or self._is_exact(request) or not can_continue_plausibly(request.submission.sampling_params):
            return noise
        key = request.model, request.submission.lora.id, self._revision(sequence)
        return noise if self._workers.draws(*key, noise) else ""

    def _is_movable(self, sequence: ResumableSequence, capabilities: Capabilities) -> bool:
        """Return whether a running sequence can continue elsewhere without a visible effect."""
        continues = not sequence.token_ids or self._recovery(sequence, capabilities) is Recovery.CONTINUE
        return continues and not sequence.request.aborted

    def _schedule(self) -> None:
        work = self._waiting or self._draining or self._detector.retrying
        if self._tick is None and work and not self._stopped:
            self._tick = asyncio.get_running_loop().call_later(_TICK_S, self._on_tick)

    def _on_tick(self) -> None:
        self._tick = None
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._below.read_work()
        _each(waiting, self._resume)
        self._draining = [session for session in self._draining if self._move_some(session)]
        self._apply(self._detector.review())
        isolated = self._detector.next_isolated_retry(_is_retried_alone)
        for sequence in isolated:
            log.warning("suspected poison request %s is retried in isolation", sequence.request.submission.request_id)
        _each(isolated, self._resume)
        self._schedule()

    def _check_late_soon(self) -> None:
        if self._late_check is None and self._settings.preempt_after_s and self.live and not self._stopped:
            self._late_check = asyncio.get_running_loop().call_later(_LATE_CHECK_S, self._preempt)

    def _preempt(self) -> None:
        """Take places back for tenants that wait for too long, from those that have more."""
        self._late_check = None
        self._shared |= self._has_tenants()  # keys may have been added
        after_s = self._settings.preempt_after_s
        is_movable = functools.partial(self._is_movable, capabilities=functools.cache(self._workers.capabilities))
        for late in (*self._below.late(after_s), *late_in_engines(self.live, after_s)):
            taken = choose(late, self.live, is_movable)
            if taken:
                log.info("%d sequence(s) are queued again, for tenant %r waits", len(taken), late.placement.tenant)
            _each(taken, self._take_back)
        self._check_late_soon()

    def _take_back(self, sequence: ResumableSequence) -> None:
        sequence.request.take_back(sequence)
        self._resume(sequence, preempted=True)

    def _stop_poison(self, sequence: ResumableSequence) -> None:
        self.stats.poison += 1
        request = sequence.request
        log.error("poison request %s stopped: two workers died when they started it", request.submission.request_id)
        self.poison_cache.add(request.model, request.submission)
        sequence.end_with(
            PoisonRequest("Two workers died when they started this request. It is not retried on a third one.")
        )

    def _move_some(self, session: "WorkerSession") -> bool:
        """Move a few sequences from a draining worker; return whether it may have more.

        Moved all at once, each would wait for the others' prompts; sequences not yet moved get tokens meanwhile.
        """
        capabilities = functools.cache(self._workers.capabilities)  # the same for many sequences, and looked up often
        running = (sequence for sequence in self.live if sequence.session is session)
        movable = list(islice((each for each in running if self._is_movable(each, capabilities)), _MOVED_AT_ONCE))
        free: dict[tuple[str, int, ModelRevision | None, str], int] = {}
        for sequence in movable:
            request = sequence.request
            key = request.model, request.submission.lora.id, self._revision(sequence), sequence.seeded_noise
            free[key] = free.get(key, self._workers.free_capacity(*key)) - 1
            if free[key] >= 0 and sequence.session is session:  # else it has left with another one of its request
                _each([sequence], lambda sequence: self._move(sequence, session))
        return bool(movable)

    def _move(self, sequence: ResumableSequence, session: "WorkerSession") -> None:
        request = sequence.request
        # Sequences submitted together are moved together, because they can only be aborted together.
        together = [sequence] if sequence.handle is not None else request.running_on(session)
        for each in together:
            each.detach()
        if sequence.handle is not None:
            sequence.handle.abort()
        else:
            request.abort_first_submission_on(session)
        for each in together:
            each.avoid |= {session.instance_id}
            if session.worker_drains:
                each.handed_back_at += (session.address,)
        _each(together, self._resume)


def _each(sequences: Iterable[ResumableSequence], act: Callable[[ResumableSequence], None]) -> None:
    """Call a function for each sequence; an error ends only the sequence that raised it."""
    for_each(sequences, act, _fail)


def _fail(sequence: ResumableSequence, error: Exception) -> None:
    name = "that has ended" if sequence.ended else sequence.request.submission.request_id
    log.error("request %s cannot be resumed", name, exc_info=error)
    sequence.end_with(reply_error(error))


def _is_retried_alone(request: ResumableRequest) -> bool:
    return any(is_undecided(sequence) for sequence in request.sequences)
