"""A reply as a transition system: each of its tokens reaches the client exactly once and in order, whatever is lost.

The coordinator is real (real_failover.py). Workers are modelled: what an engine generates follows from the prompt that
it was sent, the id of each position being its number. So a reply that goes on at another position has a token twice, or
lacks one.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, cast

from tests.model.real_failover import PROMPT, FailoverEnd, ReplyKey
from tests.model.real_session import Input
from tests.model.replays import ReplayTable
from tests.model.stepped_loop import SteppedLoop
from tokenwire.protocol.packed_ids import prompt_ids
from tokenwire.v1 import inference_pb2 as pb

_LIMIT = ("FINISH_REASON_LENGTH",)
Commands = tuple[tuple[bytes, ...], ...]


class Running(NamedTuple):
    """A sequence in an engine."""

    slot: int
    position: int
    """Of its next token in the reply."""
    left: int
    """Tokens that it may still generate."""


class Worker(NamedTuple):
    """A worker, and what is under way to it and from it."""

    commands: tuple[bytes, ...] = ()
    events: tuple[bytes, ...] = ()
    running: tuple[Running, ...] = ()
    drains: bool = False
    lost: bool = False


class FleetState(NamedTuple):
    """A state of the coordinator and of all workers."""

    coordinator: int
    workers: tuple[Worker, ...]
    submitted: bool = False
    left: bool = False
    losses: int = 0
    drains: int = 0


@dataclass(frozen=True)
class ReplyScope:
    """How much may happen in one exploration."""

    tokens: int = 3
    workers: int = 3
    losses: int = 0
    drains: int = 0
    replays: bool = False
    """Whether engines can only generate a lost reply again from its start."""
    leaves: bool = False
    """Whether the client may leave."""


class ReplyModel:
    """All that may happen to one reply in a scope."""

    def __init__(self, scope: ReplyScope, coordinator: type[FailoverEnd] = FailoverEnd) -> None:
        self.scope = scope
        make: Callable[[SteppedLoop], FailoverEnd] = lambda loop: coordinator(  # noqa: E731
            loop, scope.workers, scope.tokens, scope.replays
        )
        self._table: ReplayTable[Input, Commands] = ReplayTable(make)

    def close(self) -> None:
        """Close the loop."""
        self._table.close()

    def initial(self) -> FleetState:
        """Return a fleet without requests."""
        return FleetState(ReplayTable.INITIAL, (Worker(),) * self.scope.workers)

    def canonical(self, state: FleetState) -> FleetState:
        """Return the state itself: the first worker that is ready is used."""
        return state

    def _known(self, state: FleetState) -> ReplyKey:
        return cast("ReplyKey", self._table.key(state.coordinator))

    # What may happen.

    def steps(self, state: FleetState) -> Iterator[tuple[Input, FleetState]]:
        """Yield everything that may happen next."""
        if not state.submitted:
            yield Input("submit"), self._tell(state._replace(submitted=True), Input("submit"))
            return
        known = self._known(state)
        if self.scope.leaves and not (state.left or known.ends):
            yield Input("leave"), self._tell(state._replace(left=True), Input("leave"))
        if known.is_moving:
            yield Input("move"), self._tell(state, Input("move"))
        for number, worker in enumerate(state.workers):
            if not worker.lost:
                yield from self._worker_steps(state, number, worker)

    def _worker_steps(self, state: FleetState, number: int, worker: Worker) -> Iterator[tuple[Input, FleetState]]:
        others_remain = sum(not (each.lost or each.drains) for each in state.workers) > 1
        if worker.events:
            event, after = Input("event", number, worker.events[0]), worker._replace(events=worker.events[1:])
            yield event, self._tell(_with(state, number, after), event)
        if worker.commands:
            yield Input("command", number), _with(state, number, _executed(worker))
        for sequence in worker.running:
            yield Input("generate", number), _with(state, number, _generated(worker, sequence))
        if state.losses < self.scope.losses and others_remain:
            lost = _with(state._replace(losses=state.losses + 1), number, Worker(lost=True))
            yield Input("lost", number), self._tell(lost, Input("lost", number))
        if state.drains < self.scope.drains and others_remain and not worker.drains:
            after = _sends(worker._replace(drains=True), pb.SessionResponse(draining=pb.Draining()))
            yield Input("drain", number), _with(state._replace(drains=state.drains + 1), number, after)
        if worker.drains and worker.running:
            yield Input("hand back", number), _with(state, number, _handed_back(worker))

    def _tell(self, state: FleetState, event: Input) -> FleetState:
        number, sent = self._table.step(state.coordinator, event)
        if event.kind == "event" and pb.SessionResponse.FromString(event.message).HasField("draining"):
            number, more = self._table.step(number, Input("drains", event.request))
            sent = tuple((*one, *other) for one, other in zip(sent, more, strict=True))
        workers = tuple(
            worker if worker.lost else worker._replace(commands=(*worker.commands, *commands))
            for worker, commands in zip(state.workers, sent, strict=True)
        )
        return state._replace(coordinator=number, workers=workers)

    # Statements.

    def is_final(self, state: FleetState) -> bool:
        """Return whether the request was submitted and nothing is under way."""
        busy = any(each.commands or each.events or each.running for each in state.workers)
        return state.submitted and not busy and not self._known(state).is_moving

    def violation(self, state: FleetState) -> str:
        """Return what is wrong with a reply at any time, or at its end."""
        known = self._known(state)
        received = list(known.received)
        if received != list(range(len(received))):
            return f"the client got the tokens {received}"
        if len(known.ends) > 1:
            return f"the client got the ends {known.ends}"
        if not self.is_final(state):
            return ""
        if any(known.open):
            return f"slots stay open: {known.open}"
        if not state.left and (known.ends != _LIMIT or len(received) != self.scope.tokens):
            return f"the client got {len(received)} tokens and the ends {known.ends}"
        return ""

    def step_violation(self, before: FleetState, after: FleetState) -> str:
        """Return whether something came after the end."""
        ended, now = self._known(before), self._known(after)
        return "a token came after the end" if ended.ends and now.received != ended.received else ""


def _with(state: FleetState, number: int, worker: Worker) -> FleetState:
    return state._replace(workers=(*state.workers[:number], worker, *state.workers[number + 1 :]))


def _executed(worker: Worker) -> Worker:
    """Return a worker that has carried out its first command."""
    command = pb.SessionRequest.FromString(worker.commands[0])
    worker = worker._replace(commands=worker.commands[1:])
    if command.HasField("abort"):
        for sequence in [each for each in worker.running if each.slot in command.abort.slots]:
            worker = _ended(worker, sequence, pb.Finish(slot=sequence.slot, reason=pb.FINISH_REASON_ABORT))
        return worker
    submit, (slot,) = command.submit, command.submit.slots
    if worker.drains:
        refusal = pb.Refusal(slots=[slot], code=pb.REFUSAL_CODE_DRAINING, message="draining")
        return _sends(worker, pb.SessionResponse(refusal=refusal))
    position = len(prompt_ids(submit)) - len(PROMPT)
    return worker._replace(running=(*worker.running, Running(slot, position, submit.sampling_params.max_tokens)))


def _generated(worker: Worker, sequence: Running) -> Worker:
    """Return a worker whose engine has made a step."""
    slot, position, left = sequence
    frame = pb.StepFrame(slots=[slot], counts=[1], token_ids=[position])
    if left == 1:
        finish = pb.Finish(slot=slot, reason=pb.FINISH_REASON_LENGTH)
        return _ended(worker, sequence, finish, frame)
    running = tuple(Running(slot, position + 1, left - 1) if each is sequence else each for each in worker.running)
    return _sends(worker._replace(running=running), pb.SessionResponse(frame=frame))


def _handed_back(worker: Worker) -> Worker:
    """Return a worker whose drain took too long."""
    for sequence in worker.running:
        finish = pb.Finish(slot=sequence.slot, reason=pb.FINISH_REASON_ABORT, handed_back=True)
        worker = _ended(worker, sequence, finish)
    return worker


def _ended(worker: Worker, sequence: Running, finish: pb.Finish, frame: pb.StepFrame | None = None) -> Worker:
    frame = frame or pb.StepFrame()
    frame.finishes.append(finish)
    running = tuple(each for each in worker.running if each is not sequence)
    return _sends(worker._replace(running=running), pb.SessionResponse(frame=frame))


def _sends(worker: Worker, event: pb.SessionResponse) -> Worker:
    return worker._replace(events=(*worker.events, event.SerializeToString()))
