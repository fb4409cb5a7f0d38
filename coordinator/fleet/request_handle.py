"""The interface between the fleet's layers: submitting a request with its placement, and the handle to abort it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tokenwire.coordinator.fleet.placed_memory import MemoryClaim
from tokenwire.coordinator.fleet.slots import SlotListener
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.process.value_class import value_class
from tokenwire.protocol.model_revision import ModelRevision
from tokenwire.protocol.weight_limits import WeightLimits

if TYPE_CHECKING:
    from tokenwire.coordinator.fleet.session import WorkerSession


OnPlaced = Callable[["WorkerSession", Submission, int], None]


def _ignore(session: "WorkerSession", submission: Submission, sequences: int) -> None:
    pass


@value_class
class Placement:
    """How a request is queued and placed, in addition to what its worker gets."""

    avoid: frozenset[str] = frozenset()
    """Instance ids of workers to try last, because the request was lost with them."""
    failed_at: frozenset[str] = frozenset()
    """Addresses of workers that failed it, or handed it back again: it waits for others, as long as there are any."""
    resumed: bool = False
    """Whether the client has a part of the reply: such a request is queued before new ones, and never rejected."""
    joins: bool = False
    """Whether it is a further prompt of a request whose first one was admitted: it is never rejected either."""
    sequence_bytes: int = 0
    """Memory of each of its sequences, with a part of what they share, until its reply begins."""
    memory: MemoryClaim | None = None
    """What its whole request takes while it is placed; None: nothing that counts."""
    exact: bool = False
    """Whether the client gets token ids: those of a single run, or an error."""
    tenant: str = ""
    """Whose request it is: a tenant, or an address without keys. Those that wait share the capacity."""
    weight: int = 1
    """Of the tenant: with twice the weight it gets twice the share."""
    revision: ModelRevision | None = None
    """The revision of the workers that may take it; None: any."""
    preempted: bool = False
    """Whether it was taken back from a worker for another tenant: it is queued before new requests of its own tenant,
    never rejected, and for as long as a worker can take it."""
    begun: bool = False
    """Whether the client has a part of the reply, or all parts have to be of one revision: else another revision with
    the same tokenizer may take it, if there are no workers of its own."""
    seeded_noise: str = ""
    """That of the engines that may take it, for a seeded reply that has begun; empty: any."""
    shared: bool = False
    """Whether other tenants may use its workers."""
    keeps_place: bool = False
    """Whether its replies cannot be taken back for another tenant, and there may be one."""
    weights: WeightLimits | None = None
    """How old the weights of its workers may be; None: as old as those of any worker that takes requests."""
    on_placed: OnPlaced = _ignore
    """Called with each worker, what it gets of the request and how many sequences of it, just before it is sent."""


NEW = Placement()


@dataclass(frozen=True, slots=True)
class LateTenant:
    """A tenant with sequences that have waited for too long, in the queue or in an engine."""

    placement: Placement
    priority: int
    sequences: int
    """How many wait."""
    workers: "Sequence[WorkerSession]"
    """Those that could run them."""
    is_behind: Callable[[str], bool]
    """Return whether it has had less work than another tenant, so that it would go first."""


class RequestHandle(Protocol):
    """One submitted request."""

    def abort(self) -> None:
        """Abort what still runs or is queued. Safe at any time, more than once."""

    def explain(self) -> str:
        """Return which worker has the request and why, for a debug header; empty while none has it."""


class ChoiceHandle(RequestHandle, Protocol):
    """One submitted request, whose sequences may end one by one."""

    def abort_one(self, listener: SlotListener) -> None:
        """Abort one sequence that a worker has or had, by its listener."""


class SubmissionHandle(ChoiceHandle, Protocol):
    """One submission, parts of which may be on several workers and in the queue."""

    def abort_on(self, session: "WorkerSession | None") -> None:
        """Abort what runs on one worker, or what is queued if None."""


class Fleet(Protocol):
    """A layer that takes requests. From the outside: failover, then the admission queue."""

    def check_open(self, model: str, adapter_id: int, placement: Placement = NEW, sequences: int = 1) -> None:
        """Check that one more request of a tenant would be admitted, before work on it. Raises what `submit` does."""

    def submit(
        self, model: str, submission: Submission, listeners: Sequence[SlotListener], placement: Placement = NEW
    ) -> RequestHandle:
        """Send a request to a worker of a model, one listener per sequence. Raises Unavailable or Overloaded."""
