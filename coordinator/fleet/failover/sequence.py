"""A request on its way through several workers: each sequence keeps its tokens for the next one."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tokenwire.coordinator.fleet.capabilities import common_capabilities
from tokenwire.coordinator.fleet.failover.recovery import Recovery, recovery_of, seed_for_replay
from tokenwire.coordinator.fleet.request_handle import Placement, RequestHandle
from tokenwire.coordinator.fleet.slots import SlotListener
from tokenwire.errors import Overloaded, TokenwireError, Unavailable, WorkerDraining, WorkerLost
from tokenwire.for_each import for_each
from tokenwire.v1 import inference_pb2 as pb

if TYPE_CHECKING:
    from tokenwire.coordinator.fleet.session import WorkerSession


@dataclass(frozen=True, slots=True)
class Loss:
    """A sequence without its worker."""

    instance_id: str
    """The worker that it was lost with."""
    died: bool
    """Whether the worker ended unforeseen, and not the request alone or in good order."""
    certain: bool
    """Whether the worker itself said that it dies: else only its connection is known to have ended."""
    counts: bool
    """Whether it uses up one of the request's attempts."""
    refused: bool
    """Whether the worker is there but did not take the request."""


class FailoverPolicy(Protocol):
    """Who decides what becomes of lost sequences."""

    def lost(self, sequence: "ResumableSequence", loss: Loss) -> None:
        """Go on with the sequence elsewhere, or end it."""

    def diverged(self, sequence: "ResumableSequence", position: int) -> None:
        """Decide about a sequence whose second run says something else at a position than its first."""

    def ended(self, sequence: "ResumableSequence") -> None:
        """Forget a sequence."""


@dataclass(eq=False, slots=True)
class ResumableRequest:
    """The handle of a request whose sequences go on elsewhere, each by itself, once they were lost."""

    model: str
    submit: pb.Submit
    placement: Placement
    sequences: "Sequence[ResumableSequence]" = ()
    running: int = 0
    """Sequences that have not ended."""
    aborted: bool = False
    """Whether it was ended by its id: what is lost of it does not go on elsewhere."""
    whole: RequestHandle | None = None
    """Where its sequences run together."""

    def abort(self) -> None:
        """End whatever still runs. Safe at any time, more than once."""
        self.leave_first_worker()
        for_each(self.sequences, ResumableSequence.abort)

    def running_whole(self) -> "list[ResumableSequence]":
        """Return the sequences that still run where the whole began."""
        return [
            sequence
            for sequence in self.sequences
            if sequence.handle is None and sequence.session is not None and not sequence.ended
        ]

    def leave_first_worker(self) -> None:
        """End what still runs of it as a whole."""
        if self.whole is not None:
            self.whole.abort()

    def explain(self) -> str:
        """Say which worker has it and why, and what it was lost with."""
        own = [sequence.handle for sequence in self.sequences if sequence.handle is not None]
        whole = [self.whole] if self.whole is not None else []
        said = ", ".join(part.explain() for part in own or whole)
        losses = sum(sequence.losses for sequence in self.sequences)
        return f"{said}; lost {losses} times" if losses else said

    def on_placed(self, session: "WorkerSession") -> None:
        """Prepare for the loss of the worker that gets the request as a whole."""
        for sequence in self.sequences:
            sequence.set_worker(session)
        seed_for_replay(self.submit, session.capabilities)
        self.placement.on_placed(session)


class ResumableSequence:
    """Listens to a slot, keeps what comes, and passes it on: whoever listens behind it never hears of a loss."""

    __slots__ = (
        "_began_at",
        "_last_word",
        "_listener",
        "_policy",
        "_prefilled",
        "_session",
        "avoid",
        "ended",
        "engines",
        "forked",
        "handle",
        "index",
        "losses",
        "request",
        "token_ids",
    )

    def __init__(self, request: ResumableRequest, index: int, listener: SlotListener, policy: FailoverPolicy) -> None:
        self.request = request
        self.index = index
        """Position among the sequences of its request."""
        self.token_ids = array("I")
        self.handle: RequestHandle | None = None
        """Where it runs by itself; None while it runs with the rest of its request, or waits."""
        self.losses = 0
        self.avoid: frozenset[str] = frozenset()
        """Workers that it was lost with."""
        self.ended = False
        self.engines: tuple[pb.EngineCapabilities, ...] = ()
        """What each engine can that it was with."""
        self.forked = False
        """Whether a second run said something else: now only its tokens count."""
        self._listener = listener
        self._policy = policy
        self._last_word: TokenwireError | pb.Finish | None = None
        """What the worker said that it was lost with."""
        self._session: WorkerSession | None = None
        self._began_at = 0
        self._prefilled = False

    @property
    def session(self) -> "WorkerSession | None":
        """The worker that has it; None while none has."""
        return self._session

    @property
    def gained(self) -> int:
        """Tokens from the worker that has it, or had it last."""
        return len(self.token_ids) - self._began_at

    @property
    def prompt_scored(self) -> bool:
        """Whether what was asked of the prompt has been told."""
        return self._prefilled

    def recovery(self, workers: pb.EngineCapabilities, exact: bool) -> Recovery:
        """Return how it goes on, once it has tokens, among workers that can so much; see `recovery_of`."""
        if self.forked:
            return Recovery.CONTINUE
        return recovery_of(self.request.submit.sampling_params, common_capabilities((workers, *self.engines)), exact)

    def on_placed(self, session: "WorkerSession") -> None:
        """Note the worker that goes on with it."""
        self.set_worker(session)
        self.request.placement.on_placed(session)

    def set_worker(self, session: "WorkerSession") -> None:
        """Note the worker that has it."""
        self.engines += (session.capabilities,)
        self._session = session
        self._began_at = len(self.token_ids)

    # What its worker says.

    def prefilled(self, info: pb.PrefillInfo) -> None:
        """Pass on the first time: usage is that of the request as the client sent it."""
        if not self._prefilled:
            self._prefilled = True
            self._listener.prefilled(info)

    def scored(self, rows: pb.LogprobRows) -> None:
        """Pass on."""
        self._listener.scored(rows)

    def weights(self, version: str) -> None:
        """Pass on."""
        self._listener.weights(version)

    def step(self, token_ids: list[int], finish: pb.Finish | None) -> bool:
        """Keep and pass on."""
        if finish is not None:
            return self._finish(token_ids, finish)
        self.token_ids.extend(token_ids)
        if self._listener.step(token_ids, None):
            self._end()
            return True
        return False

    def fail(self, error: TokenwireError) -> None:
        """Take it as a loss if another worker may do better; else pass it on."""
        if self.ended:
            return
        retried = (Unavailable, Overloaded) if self.token_ids else Unavailable
        # Before any worker had it the error is that of the line in which it waited.
        if self._session is None or not isinstance(error, retried):
            self.end_with(error)
            return
        lost, draining = isinstance(error, WorkerLost), isinstance(error, WorkerDraining)
        died = lost and not self._session.worker_drains
        refused = not lost and not draining
        counts = died or (isinstance(error, Unavailable) and refused)
        self._lose(died, False, counts, refused, error)

    def verified(self, count: int) -> None:
        """Hear from a replay that its worker makes tokens."""
        self._began_at -= count

    def diverged(self, position: int) -> None:
        """Hear from a replay that it says something else than before."""
        self._policy.diverged(self, position)

    # What its policy does.

    def resumed(self) -> None:
        """Tell that another worker goes on with what was said."""
        self._listener.resumed()

    def end_with(self, error: TokenwireError) -> None:
        """End with an error."""
        if not self.ended:
            self._end()
            self._listener.fail(error)

    def end_at_limit(self) -> None:
        """End as one that has all tokens that it may have."""
        self._close([], pb.Finish(reason=pb.FINISH_REASON_LENGTH))

    def give_up(self, error: TokenwireError) -> None:
        """End with what its worker said last; with this error where it said nothing."""
        if isinstance(self._last_word, pb.Finish):
            self._close([], self._last_word)
        else:
            self.end_with(self._last_word or error)

    def end_as_aborted(self) -> None:
        """End with what it has, as its worker would on an abort."""
        self._close([], pb.Finish(reason=pb.FINISH_REASON_ABORT))

    def leave(self) -> None:
        """Give the worker up that has it; nothing more is heard from there."""
        self._session = None

    def abort(self) -> None:
        """End it silently, and what runs of it by itself: nobody listens any more."""
        if self.handle is not None:
            self.handle.abort()
        self._end()

    def _finish(self, token_ids: list[int], finish: pb.Finish) -> bool:
        if not finish.handed_back:
            return self._close(token_ids, finish)
        if token_ids and self.step(token_ids, None):
            return True
        died = finish.reason == pb.FINISH_REASON_ERROR
        self._lose(died, died, died, False, finish)
        return False

    def _close(self, token_ids: list[int], finish: pb.Finish) -> bool:
        # Not ended before it is told: a listener that breaks on its last tokens has to hear of the failure.
        wants_no_more = self._listener.step(token_ids, finish)
        self._end()
        return wants_no_more

    def _lose(
        self, died: bool, certain: bool, counts: bool, refused: bool, last_word: TokenwireError | pb.Finish
    ) -> None:
        session, self._session = self._session, None
        instance_id = session.instance_id if session is not None else ""
        self.avoid |= {instance_id}
        self.losses += counts
        self._last_word = last_word
        self._policy.lost(self, Loss(instance_id, died, certain, counts, refused))

    def _end(self) -> None:
        if not self.ended:
            self.ended = True
            self._session = None
            self._policy.ended(self)
