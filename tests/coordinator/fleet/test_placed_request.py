"""The handle of a request that was sent to a worker."""

from collections.abc import Sequence
from typing import cast

from tests.coordinator.fleet.loaded_worker import LoadedWorker
from tests.workers import Listener
from tokenwire.coordinator.fleet.placed_request import PlacedRequest
from tokenwire.coordinator.fleet.request_handle import NEW
from tokenwire.coordinator.fleet.routing import Decision, Router
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.coordinator.fleet.slots import SlotListener
from tokenwire.coordinator.fleet.submission import Submission


class AbortingWorker(LoadedWorker):
    """A worker that records which slots are aborted."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.listeners: dict[int, SlotListener] = {}
        self.aborted: list[Sequence[int]] = []

    def listens(self, slot: int, listener: SlotListener) -> bool:
        """Return whether the listener has the slot."""
        return self.listeners.get(slot) is listener

    def abort(self, slots: Sequence[int]) -> None:
        """Record the slots, and free them."""
        self.aborted.append(slots)
        for slot in slots:
            del self.listeners[slot]


def test_only_sequences_that_still_run_are_aborted() -> None:
    """A slot that was freed may be another request's by then; a second abort does nothing."""
    worker = AbortingWorker("one")
    decision = cast("Decision[WorkerSession]", Router().choose([worker], Submission(prompt_token_ids=[1]), NEW))
    running, ended, replaced = Listener(), Listener(), Listener()
    handle = PlacedRequest(decision, [0, 1, 2], [running, ended, replaced])
    worker.listeners = {0: running, 2: Listener()}

    handle.abort()
    handle.abort()

    assert worker.aborted == [[0]]
    worker.listeners = {0: running}
    for elsewhere in (None, cast("WorkerSession", AbortingWorker("other"))):
        handle.abort_on(elsewhere)
    assert worker.aborted == [[0]]
    handle.abort_on(handle.session)
    assert worker.aborted == [[0], [0]]
    assert handle.session is decision.worker
    assert handle.explain() == decision.explain()


def test_one_sequence_is_aborted_by_its_listener() -> None:
    """If it still runs."""
    worker = AbortingWorker("one")
    decision = cast("Decision[WorkerSession]", Router().choose([worker], Submission(prompt_token_ids=[1]), NEW))
    running, ended = Listener(), Listener()
    handle = PlacedRequest(decision, [4, 7], [ended, running])
    worker.listeners = {7: running}

    handle.abort_one(ended)
    handle.abort_one(running)

    assert worker.aborted == [[7]]
