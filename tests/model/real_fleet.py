"""A whole fleet of real code that does only what a trace of the model says, and is compared with it after each step."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from functools import partial
from typing import Any, cast

from tests.model.admin import (
    ASKING,
    CONNECTED,
    CONNECTING,
    CUT,
    DIRECT_RESUME,
    IDLE,
    WAITING,
    AdminModel,
    Fleet,
    Happening,
    Pair,
)
from tests.model.operations import WEIGHTS_PATH, Verb, version_of
from tests.model.real_desired import MODEL, NOTHING, desired_states
from tests.model.real_worker import ADOPTION, CATCH_UP, METHODS, Answer, Call, RealWorker, WorkerOutput, encode
from tests.model.stepped_loop import TIMER, SteppedLoop
from tokenwire.coordinator.fleet.admin import FleetAdmin
from tokenwire.coordinator.fleet.pool import WorkerPool
from tokenwire.coordinator.fleet.reconciler import Reconciler
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.errors import TokenwireError, Unavailable
from tokenwire.v1 import control_pb2
from tokenwire.v1 import inference_pb2 as pb

OPERATION = ContextVar("OPERATION", default=ADOPTION)
"""The operation on behalf of which calls are made."""
TIMEOUT_S = 600


class Link:
    """What is between a coordinator and a worker: stands for the session and the control stub."""

    model = pb.Model(names=[MODEL])
    model_name = MODEL
    last_error = "cut"

    def __init__(self, coordinator: "RealCoordinator", worker: int, connection: int, serving: bytes) -> None:
        self.serving = pb.ServingState.FromString(serving)
        self.address = f"worker {worker}"
        self.timer = (coordinator.nonce, worker)
        self.state = CONNECTED if serving else CUT
        self.connection = connection
        self.requests: list[Call] = []
        self.events: list[bytes] = []
        self.answers: list[Answer] = []
        self._coordinator = coordinator
        self._calls: dict[int, list[asyncio.Future[Any]]] = defaultdict(list)
        """What waits for answers, by operation."""
        self.is_refused = False

    @property
    def control(self) -> "Link | None":
        """The stub."""
        return self if self.state == CONNECTED else None

    def __getattr__(self, method: str) -> Callable[..., Any]:
        """Return a call of the stub."""
        if method not in METHODS:
            raise AttributeError(method)
        return partial(self._call, method)

    async def _call(self, method: str, request: Any, timeout: float) -> Any:
        operation = OPERATION.get()
        if method == "AdoptState" and operation != ADOPTION:
            operation = CATCH_UP
        encoded = request.SerializeToString(deterministic=True)
        self.requests.append(Call(self._coordinator.number, self.connection, operation, method, encoded))
        future = asyncio.get_running_loop().create_future()
        self._calls[operation].append(future)
        return await future

    def on_serving_state(self, serving: pb.ServingState) -> None:
        """As WorkerSession does."""
        if serving.revision > self.serving.revision:
            self.serving = serving
            self._coordinator.on_session_change(self)

    def receive(self, output: WorkerOutput) -> None:
        """Let what a worker sends come on the way; nobody reads the answer to a call that caught up."""
        if self.state == CUT:
            return
        self.events += output.published
        for each in output.answers:
            if (each.caller, each.connection) == (self._coordinator.number, self.connection):
                self.answers.append(each)
                if each.operation == CATCH_UP:
                    self.answer(each)

    def connect(self, serving: bytes) -> None:
        """Connect again."""
        self.state = CONNECTING
        self.events.append(serving)

    def receive_next(self) -> None:
        """Read the next event."""
        event = pb.ServingState.FromString(self.events.pop(0))
        if self.state == CONNECTING:
            self.state, self.serving = CONNECTED, event
            self._coordinator.on_session_change(self)
        else:
            self.on_serving_state(event)

    def answer(self, answer: Answer) -> None:
        """Pass an answer to whoever waits for it."""
        self.answers.remove(answer)
        future = self._calls[answer.operation].pop(0)
        if answer.serving:
            # All responses have the state under this name.
            future.set_result(control_pb2.AdoptStateResponse(serving=pb.ServingState.FromString(answer.serving)))
        else:
            future.set_exception(Unavailable("the worker answered with an error"))

    def cut(self) -> None:
        """Lose what is under way."""
        self.state = CUT
        self.connection += 1
        self.requests, self.events, self.answers = [], [], []
        for future in [future for futures in self._calls.values() for future in futures]:
            if not future.done():  # a coordinator that restarts has cancelled it
                future.set_exception(Unavailable("lost"))
        self._calls.clear()

    def as_pair(self, loop: SteppedLoop) -> Pair:
        """Return it in the terms of the model."""
        phase = WAITING if loop.holds(self.timer) else ASKING if self._calls[ADOPTION] else IDLE
        received = encode(self.serving) if self.state == CONNECTED else b""
        sent = (tuple(self.requests), tuple(self.events), tuple(self.answers))
        return Pair(self.state, self.connection, received, phase, *sent)


class RealCoordinator:
    """The real DesiredStates, Reconciler and FleetAdmin of one coordinator process."""

    def __init__(self, number: int, nonce: int) -> None:
        self.number = number
        self.nonce = nonce
        self.sessions: list[Link] = []
        """As WorkerPool has them."""
        self.desired = desired_states()
        self.desired._nonce = nonce
        self.reconciler = Reconciler(self.desired, timeout_s=TIMEOUT_S)
        self._admin = FleetAdmin(cast("WorkerPool", self), self.desired, TIMEOUT_S)

    def on_session_change(self, link: Link) -> None:
        """As WorkerPool does."""
        self._consider(self.sessions if self.desired.observe(MODEL, link.serving) else [link])

    def on_lie(self, serving: pb.ServingState) -> None:
        """As WorkerPool does for a worker that the model does not have."""
        self._consider(self.sessions if self.desired.observe(MODEL, serving) else [])

    def _consider(self, links: list[Link]) -> None:
        operation = OPERATION.set(ADOPTION)
        for each in links:
            timer = TIMER.set(each.timer)
            self.reconciler.consider(cast("WorkerSession", each))
            TIMER.reset(timer)
        OPERATION.reset(operation)

    async def operate(self, verb: Verb, number: int) -> None:
        """Carry out an operation; its result does not matter here."""
        OPERATION.set(number)
        with contextlib.suppress(TokenwireError):
            await self._call(verb, number)

    async def _call(self, verb: Verb, number: int) -> None:
        match verb:
            case Verb.PAUSE:
                await self._admin.pause(MODEL, "keep", clear_cache=False)
            case Verb.PAUSE_WAIT:
                await self._admin.pause(MODEL, "wait", clear_cache=False)
            case Verb.RESUME:
                await self._admin.resume(MODEL)
            case Verb.LABEL:
                await self._admin.set_weight_version(MODEL, version_of(number))
            case Verb.LOAD:
                await self._admin.load_weights(MODEL, WEIGHTS_PATH, version_of(number), reset_prefix_cache=False)

    def known(self) -> bytes:
        """Return the desired state in the terms of the model."""
        desired = self.desired.get(MODEL)
        return NOTHING if desired is None else encode(desired)


class RealFleet:
    """Coordinators and workers, of which nothing happens by itself."""

    def __init__(self, model: AdminModel) -> None:
        self._model = model
        self._state = model.initial()
        self._loop = SteppedLoop()
        scope = model.scope
        self._workers = [RealWorker(self._loop) for _ in range(scope.workers)]
        first = model.initial()
        self._coordinators = [RealCoordinator(number, each.nonce) for number, each in enumerate(first.coordinators)]
        for coordinator in self._coordinators:
            for number, worker in enumerate(self._workers):
                coordinator.sessions.append(Link(coordinator, number, 0, worker.key().serving))

    def close(self) -> None:
        """End everything."""
        self._loop.close()

    def follow(self, trace: Iterable[Happening]) -> Fleet:
        """Do what a trace says, and compare all that is visible with the model after each step; return the last one."""
        state = self._model.initial()
        for number, happening in enumerate(trace, 1):
            state = next(after for event, after in self._model.steps(state) if event == happening)
            self._apply(happening)
            self._state = state
            self._loop.settle()
            self._compare(state, f"after step {number}, {happening}")
        return state

    def _apply(self, happening: Happening) -> None:
        kind, c, w, detail = happening
        match kind:
            case "begin":
                verb = self._model.scope.verbs[detail]
                self._loop.create_task(self._coordinators[c].operate(verb, detail))
            case "restart" if c < 0:
                for coordinator in self._coordinators:
                    if coordinator.sessions[w].state != CUT:
                        coordinator.sessions[w].cut()
                self._workers[w] = RealWorker(self._loop)
            case "restart":
                self._restart(c, detail)
            case "lie":
                lie = self._model.lie(self._state, detail)
                self._loop.call_soon(self._coordinators[c].on_lie, pb.ServingState.FromString(lie))
            case "resume directly":
                self._work(w, Call(-1, 0, ADOPTION, *DIRECT_RESUME))
            case _ if c < 0:
                self._work(w, None)
            case _:
                self._apply_to_link(kind, self._coordinators[c].sessions[w], w, detail)

    def _apply_to_link(self, kind: str, link: Link, w: int, detail: int) -> None:
        match kind:
            case "connect":
                link.connect(self._workers[w].key().serving)
            case "deliver":
                self._work(w, link.requests.pop(0))
            case "receive":
                self._loop.call_soon(link.receive_next)
            case "answer":
                link.answer(link.answers[detail])
            case "look again":
                self._loop.fire(link.timer)
            case "cut":
                link.cut()

    def _restart(self, c: int, nonce: int) -> None:
        old, new = self._coordinators[c], RealCoordinator(c, nonce)
        self._loop.create_task(old.reconciler.stop())
        self._loop.settle()
        for number, link in enumerate(old.sessions):
            link.cut()
            new.sessions.append(Link(new, number, link.connection, b""))
        self._coordinators[c] = new

    def _work(self, w: int, event: Call | None) -> None:
        output = self._workers[w].feed(event)
        for coordinator in self._coordinators:
            coordinator.sessions[w].receive(output)

    def _compare(self, state: Fleet, when: str) -> None:
        for w, (node, worker) in enumerate(zip(state.nodes, self._workers, strict=True)):
            assert worker.key() == self._model.key(node.state), f"worker {w} {when}"
            for c, pair in enumerate(node.pairs):
                link = self._coordinators[c].sessions[w]
                assert link.as_pair(self._loop) == pair, f"coordinator {c} and worker {w} {when}"
        for c, known in enumerate(state.coordinators):
            assert self._coordinators[c].known() == known.desired, f"coordinator {c} {when}"
