"""Reconciling workers with the desired state, whenever it changes."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from tests.workers import until
from tokenwire.coordinator.fleet.desired_state import DesiredStates
from tokenwire.coordinator.fleet.reconciler import Reconciler
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.v1 import control_pb2
from tokenwire.v1 import inference_pb2 as pb


class AdoptingWorker:
    """A session with a worker that adopts any state."""

    def __init__(self, *errors: Exception) -> None:
        self.model_name = "m"
        self.address = "nowhere"
        self.last_error = ""
        self.serving = pb.ServingState()
        self.control = self
        self.adopted: list[int] = []
        self.on_adopted: Callable[[], None] = lambda: None
        self._errors = list(errors)

    async def AdoptState(self, request: control_pb2.AdoptStateRequest, timeout: float) -> Any:
        """Adopt it, once all errors were raised."""
        if self._errors:
            raise self._errors.pop(0)
        return control_pb2.AdoptStateResponse(serving=request.target)

    def on_serving_state(self, serving: pb.ServingState) -> None:
        """Set the state."""
        self.serving = serving
        self.adopted.append(serving.epoch)
        self.on_adopted()


def session_of(worker: AdoptingWorker) -> WorkerSession:
    """Return the worker's session for the reconciler."""
    return cast("WorkerSession", worker)


async def test_a_state_that_changes_while_an_attempt_ends_is_adopted() -> None:
    """The attempt has checked the worker for the last time, but is not recorded as ended yet."""
    desired, worker = DesiredStates(), AdoptingWorker()
    reconciler, session = Reconciler(desired), session_of(worker)
    desired.observe("m", pb.ServingState(epoch=1))

    def change() -> None:
        worker.on_adopted = lambda: None
        desired.observe("m", pb.ServingState(epoch=2))
        reconciler.consider(session)

    def change_soon() -> None:
        asyncio.get_running_loop().call_soon(change)

    worker.on_adopted = change_soon
    reconciler.consider(session)

    await until(lambda: worker.adopted == [1, 2])
    await reconciler.stop()


async def test_stopping_ends_an_attempt_that_began_while_the_last_one_ended() -> None:
    """The next attempt starts before the last one is recorded as ended, which must not remove its record."""
    desired, worker = DesiredStates(), AdoptingWorker()
    reconciler, session = Reconciler(desired), session_of(worker)
    desired.observe("m", pb.ServingState(epoch=1))
    changed = asyncio.Event()

    def change() -> None:
        desired.observe("m", pb.ServingState(epoch=2))
        reconciler.consider(session)
        asyncio.get_running_loop().call_soon(changed.set)

    def change_soon() -> None:
        asyncio.get_running_loop().call_soon(change)

    worker.on_adopted = change_soon
    reconciler.consider(session)
    await changed.wait()
    await reconciler.stop()

    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_failed_attempt_is_retried() -> None:
    """Whatever the error, which is shown meanwhile."""
    desired, worker = DesiredStates(), AdoptingWorker(ValueError("unforeseen"))
    reconciler, session = Reconciler(desired, first_retry_s=0.01), session_of(worker)
    desired.observe("m", pb.ServingState(epoch=1))

    reconciler.consider(session)

    await until(lambda: reconciler.reconcile_error(session) == "unforeseen")
    await until(lambda: worker.adopted == [1])
    await until(lambda: reconciler.reconcile_error(session) == "")
    await reconciler.stop()


async def test_a_worker_that_adopts_something_else_is_called_again_only_after_a_pause() -> None:
    """Without one the coordinator would do nothing else."""

    class Stubborn(AdoptingWorker):
        async def AdoptState(self, request: control_pb2.AdoptStateRequest, timeout: float) -> Any:
            return control_pb2.AdoptStateResponse(serving=pb.ServingState())

    desired, worker = DesiredStates(), Stubborn()
    reconciler = Reconciler(desired, first_retry_s=3600)
    desired.observe("m", pb.ServingState(epoch=1))

    reconciler.consider(session_of(worker))
    await until(lambda: bool(worker.adopted))
    for _ in range(20):
        await asyncio.sleep(0)

    assert worker.adopted == [0]
    await reconciler.stop()
