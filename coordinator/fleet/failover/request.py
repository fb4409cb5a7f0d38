"""One submitted request: its sequences, as long as they run together and when each goes on by itself."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tokenwire.coordinator.fleet.capabilities import common_capabilities
from tokenwire.coordinator.fleet.failover.recovery import Recovery, recovery_of, seed_for_replay
from tokenwire.coordinator.fleet.failover.sequence import ResumableSequence
from tokenwire.coordinator.fleet.request_handle import Fleet, Placement, RequestHandle
from tokenwire.for_each import for_each
from tokenwire.v1 import inference_pb2 as pb

if TYPE_CHECKING:
    from tokenwire.coordinator.fleet.session import WorkerSession


class ResumableRequest:
    """One submitted request and its sequences, each of which goes on by itself once it was lost."""

    __slots__ = ("_whole", "aborted", "exact", "model", "placement", "running", "sequences", "submit")

    def __init__(self, model: str, submit: pb.Submit, placement: Placement, exact: bool) -> None:
        self.model = model
        self.submit = submit
        self.placement = placement
        self.exact = exact
        """Whether an error is wanted rather than a reply that no single run has given."""
        self.sequences: Sequence[ResumableSequence] = ()
        self.running = 0
        """Sequences that have not ended."""
        self.aborted = False
        """Whether somebody ended it by its id: what is lost of it does not go on elsewhere."""
        self._whole: RequestHandle | None = None

    def begin(self, below: Fleet) -> None:
        """Submit it as it is. Raises Unavailable or Overloaded."""
        placement = replace(self.placement, placed=self._placed)
        self._whole = below.submit(self.model, self.submit, self.sequences, placement)

    def abort(self) -> None:
        """End whatever still runs. Safe at any time, more than once."""
        self.leave_first_worker()
        for_each(self.sequences, _abort)

    def running_whole(self) -> list[ResumableSequence]:
        """Return the sequences that still run where the whole began."""
        return [
            sequence
            for sequence in self.sequences
            if sequence.handle is None and sequence.session is not None and not sequence.ended
        ]

    def leave_first_worker(self) -> None:
        """End what still runs of it as a whole."""
        if self._whole is not None:
            self._whole.abort()

    def explain(self) -> str:
        """Say which worker has it and why, and what it was lost with."""
        own = [sequence.handle for sequence in self.sequences if sequence.handle is not None]
        whole = [self._whole] if self._whole is not None else []
        said = ", ".join(part.explain() for part in own or whole)
        losses = sum(sequence.losses for sequence in self.sequences)
        return f"{said}; lost {losses} times" if losses else said

    def _placed(self, session: "WorkerSession") -> None:
        seed_for_replay(self.submit, session.capabilities)
        for sequence in self.sequences:
            sequence.placed(session)


def _abort(sequence: ResumableSequence) -> None:
    if sequence.handle is not None:
        sequence.handle.abort()
    sequence.abandon()


def request_of(sequence: ResumableSequence) -> ResumableRequest:
    """Return the request that a sequence belongs to."""
    request = sequence.request
    assert isinstance(request, ResumableRequest)
    return request


def recovery(sequence: ResumableSequence, workers: pb.EngineCapabilities) -> Recovery:
    """Say how a sequence goes on that has tokens, among workers that can so much."""
    if sequence.forked:
        return Recovery.CONTINUE
    request = request_of(sequence)
    engines = common_capabilities((workers, *sequence.engines))
    return recovery_of(request.submit.sampling_params, engines, request.exact)


def name_of(sequence: ResumableSequence) -> str:
    """Return the id of a sequence's request."""
    return request_of(sequence).submit.request_id
