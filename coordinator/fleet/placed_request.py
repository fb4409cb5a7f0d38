"""The handle of a request, or of a part of it, that was sent to a worker."""

from collections.abc import Sequence

from tokenwire.coordinator.fleet.routing import Decision
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.coordinator.fleet.slots import SlotListener
from tokenwire.process.value_class import value_class


@value_class
class PlacedRequest:
    """Its worker, with the reasons for it, and its slots there."""

    decision: Decision[WorkerSession]
    slots: Sequence[int]
    listeners: Sequence[SlotListener]

    @property
    def session(self) -> WorkerSession:
        """The session with the worker."""
        return self.decision.worker

    def abort(self) -> None:
        """Abort the sequences that still run. Safe at any time, more than once."""
        if running := self.running():
            self.session.abort([self.slots[place] for place in running])

    def running(self) -> list[int]:
        """Return the places of its sequences that still run."""
        listens = self.decision.worker.listens
        slots = enumerate(zip(self.slots, self.listeners, strict=True))
        return [place for place, (slot, listener) in slots if listens(slot, listener)]

    def abort_on(self, session: WorkerSession | None) -> None:
        """Abort it if it runs on this worker."""
        if session is self.session:
            self.abort()

    def abort_at(self, place: int) -> None:
        """Abort one of its sequences, if that still runs."""
        if self.session.listens(self.slots[place], self.listeners[place]):
            self.session.abort([self.slots[place]])

    def abort_one(self, listener: SlotListener) -> None:
        """Abort one of its sequences, by its listener."""
        self.abort_at([*self.listeners].index(listener))

    def explain(self) -> str:
        """Return which worker has the request, and why."""
        return self.decision.explain()
