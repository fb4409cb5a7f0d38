"""A worker's real admin service over an engine that answers at once, also as a table of all that it does."""

import asyncio
from typing import Any, NamedTuple, NoReturn, cast

import grpc

from tests.model.replays import ReplayTable
from tests.model.stepped_loop import SteppedLoop
from tokenwire.v1 import control_pb2
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.interface import Engine, PauseMode
from tokenwire.worker.services.control_service import ControlService, ControlTarget
from tokenwire.worker.state.serving_state import ServingStateController
from tokenwire.worker.state.weight_roots import WeightRoots

METHODS: dict[str, Any] = {
    "AdoptState": control_pb2.AdoptStateRequest,
    "LoadWeights": control_pb2.LoadWeightsRequest,
    "PauseGeneration": control_pb2.PauseGenerationRequest,
    "ResumeGeneration": control_pb2.ResumeGenerationRequest,
    "SetWeightVersion": control_pb2.SetWeightVersionRequest,
}
"""The control calls of the model, with the types of their requests."""


class Call(NamedTuple):
    """A control call."""

    caller: int
    """The coordinator."""
    connection: int
    """Counts the connections of coordinator and worker: an answer to an older one is lost."""
    operation: int
    """The number of the operation, or ADOPTION."""
    method: str
    request: bytes


ADOPTION, CATCH_UP = -1, -2
"""By the Reconciler, and before an operation."""


class Answer(NamedTuple):
    """The response to a call."""

    caller: int
    connection: int
    operation: int
    serving: bytes
    """The state in the response; empty for an error."""


class InstantEngine:
    """An engine that carries out everything at once, but waits for running sequences and for weights."""

    def __init__(self) -> None:
        self.paused = False
        self.version = ""
        self.path = ""
        self.waits_for = ""
        """What a change waits for; empty while none does."""
        self._done = asyncio.Event()

    def go_on(self) -> None:
        """End what a change waits for."""
        self._done.set()

    async def pause(self, mode: PauseMode, clear_cache: bool) -> None:
        self.paused = True
        if mode is PauseMode.WAIT:
            await self._wait("sequences")

    async def resume(self) -> None:
        self.paused = False
        if self.waits_for == "sequences":
            self.go_on()

    async def is_paused(self) -> bool:
        return self.paused

    async def is_sleeping(self) -> bool:
        return self.paused

    async def get_weight_version(self) -> str:
        return self.version

    async def set_weight_version(self, version: str) -> None:
        self.version = version

    async def load_weights(self, path: str) -> None:
        await self._wait("weights")
        self.path = path

    async def _wait(self, what: str) -> None:
        assert not self.waits_for, "two changes at once"
        self.waits_for = what
        self._done.clear()
        await self._done.wait()
        self.waits_for = ""


class WorkerOutput(NamedTuple):
    """What a worker does when something happens to it."""

    published: tuple[bytes, ...]
    answers: tuple[Answer, ...]


class WorkerKey(NamedTuple):
    """What decides what a worker does from now on."""

    serving: bytes
    waits_for: str
    paused: bool
    version: str
    path: str
    pending: tuple[Call, ...]


class _Aborted(Exception):
    """A call was answered with an error."""


class _CallContext:
    async def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        raise _Aborted(details)


class RealWorker:
    """The real ControlService and ServingStateController of one worker process."""

    def __init__(self, loop: SteppedLoop) -> None:
        self.engine = InstantEngine()
        self._published: list[bytes] = []
        self._answers: list[Answer] = []
        self._pending: list[Call] = []
        self._loop = loop
        engine = cast("Engine", self.engine)
        self._controller = ServingStateController(engine, self._publish, WeightRoots())
        self._service = ControlService(engine, self._controller, cast("ControlTarget", None), {}, "")
        self._context = cast("grpc.aio.ServicerContext[Any, Any]", _CallContext())
        loop.create_task(self._controller.start())
        loop.settle()
        self._published.clear()

    def feed(self, event: Call | None) -> WorkerOutput:
        """Make a call, or, for None, end what a change waits for; then let the worker do what it can."""
        if event is None:
            self.engine.go_on()
        else:
            self._pending.append(event)
            self._loop.create_task(self._call(event))
        self._loop.settle()
        output = WorkerOutput(tuple(self._published), tuple(self._answers))
        self._published.clear()
        self._answers.clear()
        return output

    def key(self) -> WorkerKey:
        """Return the announced state and the engine's; calls run in order of arrival."""
        engine, serving = self.engine, encode(self._controller.state)
        return WorkerKey(serving, engine.waits_for, engine.paused, engine.version, engine.path, tuple(self._pending))

    async def _call(self, call: Call) -> None:
        serving = b""
        try:
            request = METHODS[call.method].FromString(call.request)
            response = await getattr(self._service, call.method)(request, self._context)
            serving = encode(response.serving)
        except _Aborted:
            pass
        self._pending.remove(call)
        self._answers.append(Answer(call.caller, call.connection, call.operation, serving))

    def _publish(self, state: pb.ServingState) -> None:
        self._published.append(encode(state))


class WorkerTable(ReplayTable[Call | None, WorkerOutput]):
    """The states of a worker, and what it does when a call arrives, or, for None, what a change waits for."""

    def __init__(self) -> None:
        super().__init__(RealWorker)

    def serving(self, state: int) -> bytes:
        """Return what a worker in this state has announced last."""
        return cast("WorkerKey", self.key(state)).serving

    def waits_for(self, state: int) -> str:
        """Return what a change waits for; empty if none does."""
        return cast("WorkerKey", self.key(state)).waits_for


def encode(state: pb.ServingState) -> bytes:
    """Return a state as bytes, which can be compared."""
    return bytes(state.SerializeToString(deterministic=True))
