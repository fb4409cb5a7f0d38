"""A request that outlives its worker: each sequence keeps its tokens, so that another worker can resume it.

One file beyond the usual length, since a request and its sequences change each other's state.
"""

import math
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tokenwire.coordinator.fleet.capabilities import common_capabilities
from tokenwire.coordinator.fleet.failover.recovery import Recovery, recovery_of, seed_for_replay
from tokenwire.coordinator.fleet.request_handle import Placement, SubmissionHandle
from tokenwire.coordinator.fleet.slots import SlotListener
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.errors import (
    InvalidRequest,
    Overloaded,
    RevisionLost,
    TokenwireError,
    Unavailable,
    WorkerDraining,
    WorkerLost,
)
from tokenwire.process.for_each import for_each
from tokenwire.protocol.model_revision import ModelRevision
from tokenwire.protocol.seeds import has_seed
from tokenwire.v1 import inference_pb2 as pb

if TYPE_CHECKING:
    from tokenwire.coordinator.fleet.session import WorkerSession


_MOST_HAND_BACKS = 2
"""Of one address: then others are waited for."""


@dataclass(frozen=True, slots=True)
class Loss:
    """How a sequence lost its worker."""

    instance_id: str
    """The lost worker."""
    died: bool
    """Whether the worker ended unexpectedly, and not just the request, or after a drain."""
    certain: bool
    """Whether the worker reported that its engine died: else only its connection is known to have ended."""
    counts: bool
    """Whether it uses up one of the request's attempts."""
    refused: bool
    """Whether the worker is there but refused the request."""
    unproven_at: str = ""
    """The worker's address, if it may fail for everybody."""


class FailoverPolicy(Protocol):
    """Decides how lost sequences are resumed."""

    def on_lost(self, sequence: "ResumableSequence", loss: Loss) -> None:
        """Called when a sequence lost its worker: resume it elsewhere, or end it."""

    def on_diverged(self, sequence: "ResumableSequence", position: int) -> None:
        """Called when a replay of the sequence generated another token at a position than the first run."""

    def on_ended(self, sequence: "ResumableSequence") -> None:
        """Called when a sequence has ended."""

    def has_other(self, sequence: "ResumableSequence") -> bool:
        """Return whether there is a worker that has not failed the sequence."""


@dataclass(eq=False, slots=True)
class ResumableRequest:
    """The handle of a request whose sequences are resumed elsewhere, each by itself, once they were lost."""

    model: str
    submission: Submission
    placement: Placement
    sequences: "Sequence[ResumableSequence]" = ()
    running: int = 0
    """Sequences that have not ended."""
    aborted: bool = False
    """Whether it was aborted, by its id or with others: then lost sequences are not resumed."""
    sent_at: float | None = None
    """When it was first sent to a worker."""
    handle: SubmissionHandle | None = None
    """Its first submission, of all sequences together."""
    blamed: "tuple[WorkerSession, ...]" = ()
    """Workers that failed sequences of it which others served."""
    erred: "tuple[WorkerSession, ...]" = ()
    """Workers whose engine failed sequences of it: those that refused it may have been right."""

    def listen(self, listeners: Sequence[SlotListener], policy: FailoverPolicy) -> "Sequence[ResumableSequence]":
        """Return its sequences, which pass everything on to these listeners."""
        self.sequences = [ResumableSequence(self, index, each, policy) for index, each in enumerate(listeners)]
        self.running = len(self.sequences)
        return self.sequences

    def abort(self) -> None:
        """Abort what still runs. Safe at any time, more than once."""
        if self.handle is not None:
            self.handle.abort()
        for_each(self.sequences, ResumableSequence.abort)  # also of those that have ended: some wait in the queue

    @property
    def has_output(self) -> bool:
        """Whether the client has a part of the reply, be it of another sequence; results of inputs come together."""
        if self.submission.pooled is not None:  # it may have very many, each of which asks
            return False
        return any(sequence.prompt_scored or sequence.token_ids for sequence in self.sequences)

    def running_on(self, session: "WorkerSession") -> "list[ResumableSequence]":
        """Return the sequences of the first submission that still run on a worker."""
        return [
            sequence
            for sequence in self.sequences
            if sequence.handle is None and sequence.session is session and not sequence.ended
        ]

    def abort_first_submission_on(self, session: "WorkerSession | None") -> None:
        """Abort what runs of the first submission on a worker, or what of it is queued if None."""
        if self.handle is not None:
            self.handle.abort_on(session)

    def abort_one(self, listener: SlotListener) -> None:
        """Abort a sequence without calling its listener, whether a worker has it or it waits for one."""
        for sequence in self.sequences:
            if sequence.listener is listener and not sequence.ended:
                self.take_back(sequence)
                sequence.abort()

    def take_back(self, sequence: "ResumableSequence") -> None:
        """Abort a sequence on its worker, so that it can go on elsewhere."""
        sequence.detach()
        if sequence.handle is not None:
            sequence.handle.abort()
        elif self.handle is not None:
            self.handle.abort_one(sequence)

    def blame(self, session: "WorkerSession", server: "WorkerSession | None") -> None:
        """Count a request that a worker failed and another one serves, however many sequences it has."""
        if session not in self.blamed:
            self.blamed += (session,)
            witnesses = [each.address for each in (server, session if session in self.erred else None) if each]
            session.count_failed(witnesses)

    def explain(self) -> str:
        """Return which workers have it and why, and how often it was lost."""
        own = [sequence.handle for sequence in self.sequences if sequence.handle is not None]
        first = [self.handle] if self.handle is not None else []
        workers = ", ".join(handle.explain() for handle in own or first)
        losses = sum(sequence.losses for sequence in self.sequences)
        return f"{workers}; lost {losses} times" if losses else workers

    def on_placed(self, session: "WorkerSession", submission: Submission, sequences: int) -> None:
        """Record the worker of some sequences; complete the first submission by what depends on its first worker."""
        for sequence in self.sequences[submission.start : submission.start + sequences]:
            sequence.set_worker(session)
        if self.sent_at is None:
            self.sent_at = time.monotonic()
            seed_for_replay(submission, session.capabilities)
        self.placement.on_placed(session, submission, sequences)

    def on_resumed(self, session: "WorkerSession", submission: Submission, sequences: int) -> None:
        """Complete the submission of a remainder by its age, and record its worker."""
        if self.sent_at is not None:
            submission.resumed_after_ms = math.ceil((time.monotonic() - self.sent_at) * 1000)
        self.on_placed(session, submission, sequences)


class ResumableSequence:
    """A slot listener that keeps the tokens and passes them on, and hides losses from the listener behind it."""

    __slots__ = (
        "_began_at",
        "_last_result",
        "_policy",
        "_prefilled",
        "_revision",
        "_session",
        "avoid",
        "cached_tokens",
        "ended",
        "engines",
        "failed_at",
        "forked",
        "handed_back_at",
        "handle",
        "index",
        "listener",
        "losses",
        "placed_at",
        "request",
        "token_ids",
    )

    def __init__(self, request: ResumableRequest, index: int, listener: SlotListener, policy: FailoverPolicy) -> None:
        self.request = request
        """Until it has ended."""
        self.index = index
        """Position among the sequences of its request."""
        sampled = request.submission.sampled
        self.token_ids = sampled[index].token_ids if sampled else array("I")
        self.handle: SubmissionHandle | None = None
        """Its own submission; None while it runs in the request's first one, or waits."""
        self.losses = 0
        self.cached_tokens = 0
        """Of the prompt, at its first worker."""
        self.placed_at = 0.0
        """When its worker got it."""
        self.avoid: frozenset[str] = frozenset()
        """Instance ids of the workers that it lost."""
        self.failed_at: tuple[WorkerSession, ...] = ()
        """Those where it failed before its first token, until another one has served it: then they are to blame."""
        self.handed_back_at: tuple[str, ...] = ()
        """Addresses of the workers that it left without a fault of theirs: they drain, or hand it back."""
        self.ended = False
        self.engines: tuple[pb.EngineCapabilities, ...] = ()
        """Capabilities of the engines that it ran on."""
        self.forked = False
        """Whether a replay diverged: from then on it continues from its tokens."""
        self.listener = listener
        """What it passes everything on to."""
        self._policy = policy
        self._last_result: TokenwireError | pb.Finish | None = None
        """The error or finish of the lost worker."""
        self._session: WorkerSession | None = None
        self._revision: ModelRevision | None = None
        """That of the workers that it had before."""
        self._began_at = 0
        self._prefilled = False

    @property
    def session(self) -> "WorkerSession | None":
        """The session with its worker; None while it has none."""
        return self._session

    @property
    def revision(self) -> ModelRevision | None:
        """What its worker serves now, or served when it was lost; of workers with unknown weights, the one before."""
        if self._session is None or (self._revision is not None and not self._session.revision.is_known):
            return self._revision
        return self._session.revision

    @property
    def seeded_noise(self) -> str:
        """The noise that drew its tokens, if they were drawn by a seed; empty if it is not known, or any will do."""
        if self.forked or not self.token_ids or not has_seed(self.request.submission.sampling_params):
            return ""
        return next((engine.seeded_noise for engine in self.engines if engine.seeded_noise), "")

    @property
    def gained(self) -> int:
        """Tokens from its current worker, or the last one."""
        return len(self.token_ids) - self._began_at

    @property
    def tried_at(self) -> frozenset[str]:
        """Addresses of the workers that it gets only where there is no other: they failed it, or handed it back again.

        In a rolling restart of a fleet, however large, each address hands it back once.
        """
        again = {each for each in self.handed_back_at if self.handed_back_at.count(each) >= _MOST_HAND_BACKS}
        return frozenset([*again, *(each.address for each in self.failed_at)])

    @property
    def prompt_scored(self) -> bool:
        """Whether the listener got the prefill info, with the prompt's log-probabilities if requested."""
        return self._prefilled

    def recovery(self, workers: pb.EngineCapabilities, exact: bool) -> Recovery:
        """Return how it is resumed, once it has tokens, on workers with these capabilities; see `recovery_of`."""
        if self.forked:
            return Recovery.CONTINUE
        return recovery_of(
            self.request.submission.sampling_params, common_capabilities((workers, *self.engines)), exact
        )

    def set_worker(self, session: "WorkerSession") -> None:
        """Set its worker."""
        self.engines += (session.capabilities,)
        self._session = session
        self._began_at = len(self.token_ids)
        self.placed_at = time.monotonic()

    # The slot listener.

    def prefilled(self, info: pb.PrefillInfo) -> None:
        """Pass on only the first one: usage is that of the request as the client sent it."""
        if not self._prefilled:
            self._prefilled = True
            self._blame()
            self.cached_tokens = info.cached_tokens
            self.listener.prefilled(info)

    def scored(self, rows: pb.LogprobRows) -> None:
        """Pass on."""
        self.listener.scored(rows)

    def weights(self, version: str) -> None:
        """Pass on."""
        self.listener.weights(version)

    def step(self, token_ids: list[int], finish: pb.Finish | None) -> bool:
        """Keep and pass on."""
        if finish is not None:
            return self._finish(token_ids, finish)
        self.token_ids.fromlist(token_ids)  # a third of what `extend` takes
        if self.listener.step(token_ids, None):
            self._end()
            return True
        return False

    def fail(self, error: TokenwireError) -> None:
        """Treat the error as a loss if another worker may succeed; else pass it on."""
        if self.ended:
            return
        if self._session is None or isinstance(error, RevisionLost):
            self.end_with(error)  # not placed yet, so that it is the admission queue's; or no other one may take it
            return
        if self.request.submission.pooled is not None:
            del self.token_ids[:]  # of an input there are none, whatever its worker sent
        lost, draining = isinstance(error, WorkerLost), isinstance(error, WorkerDraining)
        refused = not lost and not draining
        if refused and not self._prefilled and not self.token_ids and self._fails_here(error):
            return
        if not isinstance(error, (Unavailable, Overloaded) if self.token_ids else Unavailable):
            self.end_with(error)
            return
        died = lost and not self._session.worker_drains
        counts = died or (isinstance(error, Unavailable) and refused)
        self._lose(died, False, counts, refused, error)

    def on_verified(self, count: int) -> None:
        """Count tokens that a replay generated, and did not pass on, as gained."""
        self._began_at -= count

    def on_diverged(self, position: int) -> None:
        """Pass on that a replay generated another token."""
        self._policy.on_diverged(self, position)

    # Called by the policy.

    def resumed(self) -> None:
        """Pass on that another worker continues the sequence."""
        self.listener.resumed()

    def end_with(self, error: TokenwireError) -> None:
        """End with an error."""
        if not self.ended:
            self._end()
            self.listener.fail(error)

    def end_at_limit(self) -> None:
        """End with finish reason length: it has all tokens that it may have."""
        self._close([], pb.Finish(reason=pb.FINISH_REASON_LENGTH))

    def give_up(self, error: TokenwireError) -> None:
        """End with the error or finish of the lost worker; with `error` if there is none."""
        if isinstance(self._last_result, pb.Finish):
            self._close([], self._last_result)
        else:
            self.end_with(self._last_result or error)

    def end_as_aborted(self) -> None:
        """End with its tokens so far, as its worker would on an abort; leave the queue if it waits there."""
        if self.handle is not None:
            self.handle.abort()
        self._close([], pb.Finish(reason=pb.FINISH_REASON_ABORT))

    def detach(self) -> None:
        """Detach from its worker: it is lost, or the slot there is about to be aborted."""
        self._revision = self.revision
        self._session = None

    def abort(self) -> None:
        """End it without calling the listener, and abort its own submission."""
        if self.handle is not None:
            self.handle.abort()
        self._end()

    def _finish(self, token_ids: list[int], finish: pb.Finish) -> bool:
        failed = finish.reason == pb.FINISH_REASON_ERROR
        if not finish.handed_back:  # tokens that come with an error are nobody's
            return not (failed and self._fails_here(finish)) and self._close(token_ids, finish)
        if token_ids and self.step(token_ids, None):
            return True
        self._lose(failed, failed, failed, False, finish)
        return False

    def _fails_here(self, result: TokenwireError | pb.Finish) -> bool:
        """Try it at another worker, if there is one that has not failed it; return whether that is so.

        Not a worker that is gone, but one that may fail whatever it gets: only another one can tell.
        """
        if self._session is None or not self._policy.has_other(self):
            return False
        self.failed_at += (self._session,)
        if not isinstance(result, InvalidRequest):
            self.request.erred += (self._session,)
        self._lose(False, False, isinstance(result, Unavailable), False, result)
        return True

    def _blame(self) -> None:
        """Blame the workers where it failed: this one serves it."""
        for session in self.failed_at:
            self.request.blame(session, self._session)
        self.failed_at = ()

    def _close(self, token_ids: list[int], finish: pb.Finish) -> bool:
        assert not self.ended, "a sequence gets a second terminal event"
        if self.failed_at and finish.reason not in (pb.FINISH_REASON_ERROR, pb.FINISH_REASON_ABORT):
            self._blame()
        self.token_ids.extend(token_ids)
        # Ended only afterwards: a listener that raises on its last tokens must still be failed.
        stops = self.listener.step(token_ids, finish)
        self._end()
        return stops

    def _lose(self, died: bool, certain: bool, counts: bool, refused: bool, result: TokenwireError | pb.Finish) -> None:
        session = self._session
        instance_id, unproven_at = ("", "") if session is None else (session.instance_id, session.unproven_at)
        self.detach()
        self.avoid |= {instance_id}
        self.losses += counts
        if session is not None and not (counts or refused):
            self.handed_back_at += (session.address,)
        self._last_result = result
        self._policy.on_lost(self, Loss(instance_id, died, certain, counts, refused, unproven_at))

    def _end(self) -> None:
        if not self.ended:
            self.ended = True
            self._session = None
            self._policy.on_ended(self)
            del self.request  # they refer to each other: what is left over would be garbage to search for
