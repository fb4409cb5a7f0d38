"""What the layers of the fleet hand each other: a request on its way to a worker, and the way to end it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tokenwire.coordinator.fleet.slots import SlotListener
from tokenwire.v1 import inference_pb2 as pb

if TYPE_CHECKING:
    from tokenwire.coordinator.fleet.routing import Decision
    from tokenwire.coordinator.fleet.session import WorkerSession


def _ignore(session: object) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Placement:
    """What is to be known of a request beside what its worker gets."""

    avoid: frozenset[str] = frozenset()
    """Instance ids of workers that are to be tried last: the request was lost with them."""
    resumed: bool = False
    """Whether the client has a part of the reply: such a request goes before new ones, and is not refused."""
    joins: bool = False
    """Whether it is a further prompt of a request whose first one was taken: such a one is not refused either."""
    exact: bool = False
    """Whether its client gets ids: those of one run, or an error."""
    tenant: str = ""
    """Whose request it is; tenants have equal shares of what is scarce."""
    on_placed: "Callable[[WorkerSession], None]" = _ignore
    """Called with every worker that gets the request, or goes on with a part of it, just before it does."""


NEW = Placement()


class RequestHandle(Protocol):
    """One submitted request."""

    def abort(self) -> None:
        """End whatever still runs, or stop waiting. Safe at any time, more than once."""

    def explain(self) -> str:
        """Say which worker has the request and why, for a debug header; empty while none has it."""


@dataclass(frozen=True, slots=True)
class PlacedRequest:
    """The handle of a request that a worker has."""

    decision: "Decision[WorkerSession]"
    slots: Sequence[int]
    listeners: Sequence[SlotListener]

    @property
    def session(self) -> "WorkerSession":
        """The session with the worker that has it."""
        return self.decision.worker

    def abort(self) -> None:
        """Abort the sequences that still run. Safe at any time, more than once."""
        running = [
            slot
            for slot, listener in zip(self.slots, self.listeners, strict=True)
            if self.session.listens(slot, listener)
        ]
        if running:
            self.session.abort(running)

    def explain(self) -> str:
        """Say which worker has the request, and why."""
        return self.decision.explain()


class Fleet(Protocol):
    """Takes requests. Its layers, from the outside: going on after losses, waiting in line, the choice of a worker."""

    def check_open(self, model: str, adapter_id: int) -> None:
        """Check that one more request would be admitted, before anything is done for it. Raises as `submit`."""

    def submit(
        self, model: str, submit: pb.Submit, listeners: Sequence[SlotListener], placement: Placement = NEW
    ) -> RequestHandle:
        """Send a request to a worker of a model, one listener per sequence. Raises Unavailable or Overloaded."""
