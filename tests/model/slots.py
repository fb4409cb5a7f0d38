"""The life of slots as a transition system: between submit and terminal event, whatever crosses on the way.

Both ends of the session are the real ones (real_session.py); the model adds the stream between them and the engine.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, cast

from tests.model.real_session import (
    ENDED,
    TOKEN,
    WRONG,
    CoordinatorEnd,
    CoordinatorKey,
    Input,
    WorkerEnd,
    WorkerEndKey,
)
from tests.model.replays import ReplayTable
from tokenwire.v1 import inference_pb2 as pb


class Stream(NamedTuple):
    """A state of both ends, and what is under way between them."""

    coordinator: int
    worker: int
    commands: tuple[bytes, ...] = ()
    events: tuple[bytes, ...] = ()
    submitted: int = 0
    aborted: frozenset[int] = frozenset()
    refused: bool = False
    handed_back: bool = False
    broken: bool = False
    coordinator_lost: bool = False
    worker_lost: bool = False


@dataclass(frozen=True)
class SlotScope:
    """How much may happen in one exploration."""

    requests: int = 2
    stopping: frozenset[int] = frozenset()
    """Requests whose listeners stop them at the first token, as a stop string does."""
    aborts: bool = False
    """Whether clients may leave."""
    refusals: bool = False
    """Whether the engine may refuse requests."""
    hand_back: bool = False
    """Whether the worker may hand back its sequences at the deadline of a drain."""
    losses: bool = False
    """Whether the connection may break."""


class SlotModel:
    """All that may happen in a scope. Every sequence generates at most one token."""

    def __init__(self, scope: SlotScope, coordinator: type[CoordinatorEnd] = CoordinatorEnd) -> None:
        self.scope = scope
        self.coordinator: ReplayTable[Input, tuple[bytes, ...]] = ReplayTable(
            lambda loop: coordinator(loop, scope.requests, scope.stopping)
        )
        self.worker: ReplayTable[Input, tuple[bytes, ...]] = ReplayTable(WorkerEnd)

    def close(self) -> None:
        """Close both loops."""
        self.coordinator.close()
        self.worker.close()

    def initial(self) -> Stream:
        """Return a session after the welcome."""
        return Stream(ReplayTable.INITIAL, ReplayTable.INITIAL)

    def canonical(self, state: Stream) -> Stream:
        """Return the state itself: requests begin in the order of their numbers."""
        return state

    def _known(self, state: Stream) -> CoordinatorKey:
        return cast("CoordinatorKey", self.coordinator.key(state.coordinator))

    def _at_worker(self, state: Stream) -> WorkerEndKey:
        return cast("WorkerEndKey", self.worker.key(state.worker))

    # What may happen.

    def steps(self, state: Stream) -> Iterator[tuple[Input, Stream]]:
        """Yield everything that may happen next."""
        if not state.coordinator_lost:
            yield from self._coordinator_steps(state)
        if not state.worker_lost:
            yield from self._worker_steps(state)
        yield from self._engine_steps(state)
        if self.scope.losses and not state.broken:
            yield Input("break"), state._replace(broken=True, commands=(), events=())

    def _coordinator_steps(self, state: Stream) -> Iterator[tuple[Input, Stream]]:
        known = self._known(state)
        if state.submitted < self.scope.requests:
            submit = Input("submit", state.submitted)
            yield submit, self._tell_coordinator(state._replace(submitted=state.submitted + 1), submit)
        for request, slot in enumerate(known.slots):
            if self.scope.aborts and slot >= 0:
                abort = Input("abort", request)
                yield abort, self._tell_coordinator(state._replace(aborted=state.aborted | {request}), abort)
        if state.events:
            event = Input("event", message=state.events[0])
            yield event, self._tell_coordinator(state._replace(events=state.events[1:]), event)
        if state.broken:
            yield (
                Input("coordinator lost"),
                self._tell_coordinator(state._replace(coordinator_lost=True), Input("lost")),
            )

    def _worker_steps(self, state: Stream) -> Iterator[tuple[Input, Stream]]:
        worker, scope = self._at_worker(state), self.scope
        if state.commands:
            message, after = state.commands[0], state._replace(commands=state.commands[1:])
            yield Input("command", message=message), self._tell_worker(after, Input("command", message=message))
            if scope.refusals and not state.refused and pb.SessionRequest.FromString(message).HasField("submit"):
                refuse = Input("refuse", message=message)
                yield refuse, self._tell_worker(after._replace(refused=True), refuse)
        if scope.hand_back and not state.handed_back:
            hand_back = Input("hand back")
            yield hand_back, self._tell_worker(state._replace(handed_back=True), hand_back)
        if worker.writes and not state.broken:
            yield Input("send"), self._tell_worker(state, Input("send"))
        if state.broken:
            yield Input("worker lost"), self._tell_worker(state._replace(worker_lost=True), Input("lost"))

    def _engine_steps(self, state: Stream) -> Iterator[tuple[Input, Stream]]:
        worker = self._at_worker(state)
        for request in worker.running:
            if request not in worker.generated and request not in worker.aborted:
                yield Input("generate", request), self._tell_worker(state, Input("generate", request))
            yield Input("end", request), self._tell_worker(state, Input("end", request))

    def _tell_coordinator(self, state: Stream, event: Input) -> Stream:
        number, sent = self.coordinator.step(state.coordinator, event)
        commands = () if state.broken else (*state.commands, *sent)
        return state._replace(coordinator=number, commands=commands)

    def _tell_worker(self, state: Stream, event: Input) -> Stream:
        number, sent = self.worker.step(state.worker, event)
        return state._replace(worker=number, events=(*state.events, *sent))

    # Statements.

    def is_final(self, state: Stream) -> bool:
        """Return whether all requests were submitted and nothing is under way, or the connection is gone."""
        worker = self._at_worker(state)
        if state.broken:
            return state.coordinator_lost and state.worker_lost and not worker.running
        quiet = not (state.commands or state.events or worker.running or worker.writes)
        return quiet and state.submitted == self.scope.requests

    def violation(self, state: Stream) -> str:
        """Return what is wrong with a state: with a slot's life at any time, or with what is left at rest."""
        known, worker = self._known(state), self._at_worker(state)
        if worker.ended:
            return f"the worker ended the session: {worker.ended}"
        if known.loss and not state.coordinator_lost:
            return f"the coordinator ended the session: {known.loss}"
        for request, received in enumerate(known.received):
            if WRONG in received:
                return f"request {request} got the tokens of another one"
            if ENDED in received[:-1]:
                return f"request {request} was called after its end: {', '.join(received)}"
            if received.count(TOKEN) > 1:
                return f"request {request} got its token twice"
        if not self.is_final(state):
            return ""
        if known.open or worker.open:
            return f"{known.open} slots of the coordinator and {worker.open} of the worker stay open"
        unended = set(range(state.submitted)) - state.aborted
        lost = {each for each in unended & set(worker.generated) if TOKEN not in known.received[each]}
        if lost and not state.broken:
            return f"requests {sorted(lost)} lost their tokens"
        unended = {request for request in unended if ENDED not in known.received[request]}
        return f"requests {sorted(unended)} never ended" if unended else ""

    def step_violation(self, before: Stream, after: Stream) -> str:
        """Return nothing: a wrong step leads to a wrong state."""
        return ""
