"""The admin protocol as a transition system: operations, announcements and reconciliation, in every order.

Workers and desired states are the real ones (real_worker.py, real_desired.py); the model adds what is between them: the
order of messages, connections that break, processes that restart, and the phases of the Reconciler.
One class beyond the usual length, since every step is a function of the whole state.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, cast

from tests.model import real_desired as desired_states
from tests.model.operations import Verb, undone
from tests.model.real_desired import NOTHING
from tests.model.real_worker import ADOPTION, CATCH_UP, Answer, Call, WorkerKey, WorkerTable
from tokenwire.v1 import control_pb2

CUT, CONNECTING, CONNECTED = range(3)
"""Whether coordinator and worker are connected; CONNECTING until the welcome was read."""
FORGED = 99
"""In place of the number of an operation that a hostile worker announces: it is made up."""
DIRECT_RESUME = "ResumeGeneration", control_pb2.ResumeGenerationRequest().SerializeToString()
"""By others than coordinators."""
IDLE, WAITING, ASKING = range(3)
"""What a Reconciler does for a worker: nothing, sleep until it looks again, or wait for an answer."""


class Pair(NamedTuple):
    """What is between a coordinator and a worker."""

    link: int = CONNECTING
    connection: int = 0
    received: bytes = b""
    """The serving state that the coordinator has received."""
    phase: int = IDLE
    requests: tuple[Call, ...] = ()
    events: tuple[bytes, ...] = ()
    """Announced states under way: the welcome first."""
    answers: tuple[Answer, ...] = ()


class WorkerNode(NamedTuple):
    """A worker, its pairs by coordinator, and the operations that it confirmed to a coordinator."""

    state: int
    pairs: tuple[Pair, ...]
    confirmed: tuple[int, ...] = ()


class Coordinator(NamedTuple):
    """What a coordinator has of all workers together."""

    nonce: int
    desired: bytes = NOTHING
    issued: int = 0


class Fleet(NamedTuple):
    """A state of the whole system."""

    nodes: tuple[WorkerNode, ...]
    coordinators: tuple[Coordinator, ...]
    left: tuple[int, ...]
    """Numbers of the operations that have not begun."""
    epochs: tuple[tuple[int, int], ...]
    """Epoch and number of those that have."""
    worker_restarts: int
    coordinator_restarts: int
    cuts: int
    direct: int
    lies: int


class Happening(NamedTuple):
    """What happens: a kind, and what it happens to."""

    kind: str
    coordinator: int = -1
    worker: int = -1
    detail: int = -1

    def __str__(self) -> str:
        coordinator = f" coordinator {self.coordinator}" if self.coordinator >= 0 else ""
        worker = f" worker {self.worker}" if self.worker >= 0 else ""
        return f"{self.kind}{coordinator}{worker}{f' ({self.detail})' if self.detail >= 0 else ''}"


@dataclass(frozen=True)
class Scope:
    """How much may happen in one exploration."""

    verbs: tuple[Verb, ...]
    """The operations: any coordinator may begin each of them, at any time, in any order."""
    coordinators: int = 2
    workers: int = 2
    worker_restarts: int = 0
    coordinator_restarts: int = 0
    cuts: int = 0
    """Connections that break; a partition is several."""
    direct: int = 0
    """Calls to a worker by others, outside admin operations: they resume it."""
    lies: int = 0
    """States that a hostile worker announces: made up, or with the record of any one operation."""


class AdminModel:
    """All that may happen in a scope."""

    def __init__(self, scope: Scope, table: WorkerTable) -> None:
        self.scope = scope
        self._table = table

    def initial(self) -> Fleet:
        """Return a fleet that has connected, before any operation."""
        scope, serving = self.scope, self._table.serving(WorkerTable.INITIAL)
        pair = Pair(CONNECTED, received=serving)
        return Fleet(
            (WorkerNode(WorkerTable.INITIAL, (pair,) * scope.coordinators),) * scope.workers,
            tuple(Coordinator(2 * number + 2) for number in range(scope.coordinators)),
            tuple(range(len(scope.verbs))),
            (),
            scope.worker_restarts,
            scope.coordinator_restarts,
            scope.cuts,
            scope.direct,
            scope.lies,
        )

    def key(self, state: int) -> WorkerKey:
        """Return what a number in `Node.state` stands for."""
        return cast("WorkerKey", self._table.key(state))

    def canonical(self, state: Fleet) -> Fleet:
        """Return the fleet without messages that carry nothing new, its workers sorted: they are interchangeable.

        When such a message is read makes no difference, now or later: revisions only rise. Coordinators are not sorted,
        since their epochs distinguish them.
        """
        return state._replace(nodes=tuple(sorted(_absorb(node) for node in state.nodes)))

    # What may happen.

    def steps(self, state: Fleet) -> Iterator[tuple[Happening, Fleet]]:
        """Yield everything that may happen next."""
        for c in range(len(state.coordinators)):
            yield from self._begin(state, c)
            for w, node in enumerate(state.nodes):
                yield from self._messages(state, c, w, node.pairs[c])
        yield from self._of_workers(state)
        yield from self._faults(state)

    def _messages(self, state: Fleet, c: int, w: int, pair: Pair) -> Iterator[tuple[Happening, Fleet]]:
        if pair.link == CUT:
            yield Happening("connect", c, w), self.connect(state, c, w)
        if pair.requests:
            yield Happening("deliver", c, w), self.deliver(state, c, w)
        if pair.events:
            yield Happening("receive", c, w), self.receive(state, c, w)
        for number in range(len(pair.answers)):
            yield Happening("answer", c, w, number), self.answer(state, c, w, number)
        if pair.phase == WAITING:
            yield Happening("look again", c, w), self.look_again(state, c, w)

    def _begin(self, state: Fleet, c: int) -> Iterator[tuple[Happening, Fleet]]:
        if any(node.pairs[c].link == CONNECTED for node in state.nodes):
            for number in state.left:
                yield Happening("begin", c, detail=number), self.begin(state, c, number)

    def _of_workers(self, state: Fleet) -> Iterator[tuple[Happening, Fleet]]:
        for w, node in enumerate(state.nodes):
            if self._table.waits_for(node.state):
                yield Happening(f"{self._table.waits_for(node.state)} done", worker=w), self.work(state, w, None)
            if state.direct:
                resume = Call(-1, 0, ADOPTION, *DIRECT_RESUME)
                yield (
                    Happening("resume directly", worker=w),
                    self.work(state._replace(direct=state.direct - 1), w, resume),
                )

    def _faults(self, state: Fleet) -> Iterator[tuple[Happening, Fleet]]:
        for w in range(len(state.nodes)):
            if state.worker_restarts:
                yield Happening("restart", worker=w), self.restart_worker(state, w)
            for c in range(len(state.coordinators)):
                if state.cuts and state.nodes[w].pairs[c].link != CUT:
                    yield Happening("cut", c, w), self.cut(state._replace(cuts=state.cuts - 1), c, w)
        if state.lies:
            for c in range(len(state.coordinators)):
                for number in (FORGED, *(number for _, number in state.epochs)):
                    lying = state._replace(lies=state.lies - 1)
                    yield Happening("lie", c, detail=number), self.believe(lying, c, self.lie(state, number))
        if state.coordinator_restarts:
            for c in range(len(state.coordinators)):
                for nonce in (2 * len(state.coordinators) + 1, 1):  # greater or less than all others
                    yield Happening("restart", c, detail=nonce), self.restart_coordinator(state, c, nonce)

    # Operations.

    def begin(self, state: Fleet, c: int, number: int) -> Fleet:
        """Send an operation to all workers that are connected."""
        coordinator = state.coordinators[c]
        epoch = desired_states.next_epoch(coordinator.desired, coordinator.issued, coordinator.nonce)
        method, request = desired_states.request(coordinator.desired, self.scope.verbs[number], number, epoch)
        for w, node in enumerate(state.nodes):
            pair = node.pairs[c]
            if pair.link == CONNECTED:
                requests = [*pair.requests]
                if self._catches_up(state, c, pair):
                    adoption = desired_states.adoption(coordinator.desired, pair.received)
                    requests.append(Call(c, pair.connection, CATCH_UP, "AdoptState", adoption))
                requests.append(Call(c, pair.connection, number, method, request))
                state = _with_pair(state, c, w, pair._replace(requests=tuple(requests)))
        state = _with_coordinator(state, c, coordinator._replace(issued=epoch))
        left = tuple(each for each in state.left if each != number)
        return state._replace(left=left, epochs=tuple(sorted((*state.epochs, (epoch, number)))))

    def deliver(self, state: Fleet, c: int, w: int) -> Fleet:
        """Let a worker receive a call."""
        pair = state.nodes[w].pairs[c]
        state = _with_pair(state, c, w, pair._replace(requests=pair.requests[1:]))
        return self.work(state, w, pair.requests[0])

    def work(self, state: Fleet, w: int, event: Call | None) -> Fleet:
        """Let a worker carry out a call, or, for None, go on with one that waited."""
        number, step = self._table.step(state.nodes[w].state, event)
        node = state.nodes[w]._replace(state=number)
        pairs = []
        for c, pair in enumerate(node.pairs):
            if pair.link != CUT:
                answers = [each for each in step.answers if _is_read(each, c, pair)]
                events, answers = (*pair.events, *step.published), [*pair.answers, *answers]
                pair = pair._replace(events=events, answers=tuple(answers))
            pairs.append(pair)
        return _with_node(state, w, node._replace(pairs=tuple(pairs)))

    # What a coordinator receives.

    def receive(self, state: Fleet, c: int, w: int) -> Fleet:
        """Let a coordinator read a worker's next event."""
        pair = state.nodes[w].pairs[c]
        serving, pair = pair.events[0], pair._replace(events=pair.events[1:])
        if pair.link == CONNECTING:  # a welcome replaces what was known
            return self._learn(state, c, w, pair._replace(link=CONNECTED, received=b""), serving)
        return self._learn(state, c, w, pair, serving)

    def answer(self, state: Fleet, c: int, w: int, number: int) -> Fleet:
        """Let a coordinator read an answer, which may come before earlier events."""
        node = state.nodes[w]
        pair, answer = node.pairs[c], node.pairs[c].answers[number]
        pair = pair._replace(answers=pair.answers[:number] + pair.answers[number + 1 :])
        if answer.operation == ADOPTION:
            if not answer.serving:
                return _with_pair(state, c, w, pair._replace(phase=WAITING))
            state = self._learn(state, c, w, pair, answer.serving)
            return self.look_again(state, c, w)
        if not answer.serving:
            return _with_pair(state, c, w, pair)
        confirmed = tuple(sorted({*node.confirmed, answer.operation}))
        state = _with_node(state, w, node._replace(confirmed=confirmed))
        return self._learn(state, c, w, pair, answer.serving)

    def _learn(self, state: Fleet, c: int, w: int, pair: Pair, serving: bytes) -> Fleet:
        """WorkerSession.on_serving_state, and WorkerPool.on_session_change behind it."""
        if pair.received and desired_states.revision_of(serving) <= desired_states.revision_of(pair.received):
            return _with_pair(state, c, w, pair)
        state = _with_pair(state, c, w, pair._replace(received=serving))
        if self._observed(state.coordinators[c].desired, serving) == state.coordinators[c].desired:
            return self._consider(state, c, w)
        return self.believe(state, c, serving)

    def believe(self, state: Fleet, c: int, serving: bytes) -> Fleet:
        """Let a coordinator update its desired state, and reconcile all workers if that changes."""
        coordinator = state.coordinators[c]
        desired = self._observed(coordinator.desired, serving)
        if desired == coordinator.desired:
            return state
        state = _with_coordinator(state, c, coordinator._replace(desired=desired))
        for each in range(len(state.nodes)):
            state = self._consider(state, c, each)
        return state

    def lie(self, state: Fleet, number: int) -> bytes:
        """Return what a hostile worker announces: a pause that nobody ordered, or one operation as if it were all."""
        if number == FORGED:
            return desired_states.forged()
        epoch = next(epoch for epoch, each in state.epochs if each == number)
        return desired_states.replayed(self.scope.verbs[number], number, epoch)

    def _observed(self, desired: bytes, serving: bytes) -> bytes:
        return desired_states.observed(desired, serving)

    def _catches_up(self, state: Fleet, c: int, pair: Pair) -> bool:
        """FleetAdmin._adopt."""
        return self._has_drifted(state, c, pair)

    # Reconciler.

    def _consider(self, state: Fleet, c: int, w: int) -> Fleet:
        pair = state.nodes[w].pairs[c]
        if pair.phase != IDLE or not self._has_drifted(state, c, pair):
            return state
        if not desired_states.epoch_of(pair.received):
            return self.look_again(state, c, w)
        return _with_pair(state, c, w, pair._replace(phase=WAITING))

    def look_again(self, state: Fleet, c: int, w: int) -> Fleet:
        """Ask a worker to adopt the desired state if it still differs, or be done with it."""
        pair = state.nodes[w].pairs[c]
        if not self._has_drifted(state, c, pair):
            return _with_pair(state, c, w, pair._replace(phase=IDLE))
        adoption = desired_states.adoption(state.coordinators[c].desired, pair.received)
        call = Call(c, pair.connection, ADOPTION, "AdoptState", adoption)
        return _with_pair(state, c, w, pair._replace(phase=ASKING, requests=(*pair.requests, call)))

    def _has_drifted(self, state: Fleet, c: int, pair: Pair) -> bool:
        return pair.link == CONNECTED and desired_states.has_drifted(state.coordinators[c].desired, pair.received)

    # Faults.

    def cut(self, state: Fleet, c: int, w: int) -> Fleet:
        """Break a connection: what is under way is lost."""
        pair = state.nodes[w].pairs[c]
        phase = WAITING if pair.phase == ASKING else pair.phase
        return _with_pair(state, c, w, Pair(CUT, pair.connection + 1, phase=phase))

    def connect(self, state: Fleet, c: int, w: int) -> Fleet:
        """Connect again: the worker sends a welcome."""
        node = state.nodes[w]
        pair = node.pairs[c]._replace(link=CONNECTING, events=(self._table.serving(node.state),))
        return _with_pair(state, c, w, pair)

    def restart_worker(self, state: Fleet, w: int) -> Fleet:
        """Kill a worker and start it anew."""
        for c, pair in enumerate(state.nodes[w].pairs):
            if pair.link != CUT:
                state = self.cut(state, c, w)
        state = _with_node(state, w, state.nodes[w]._replace(state=WorkerTable.INITIAL))
        return state._replace(worker_restarts=state.worker_restarts - 1)

    def restart_coordinator(self, state: Fleet, c: int, nonce: int) -> Fleet:
        """Kill a coordinator and start it anew, without what it knew."""
        for w, node in enumerate(state.nodes):
            state = _with_pair(state, c, w, Pair(CUT, node.pairs[c].connection + 1))
        state = _with_coordinator(state, c, Coordinator(nonce))
        return state._replace(coordinator_restarts=state.coordinator_restarts - 1)

    # Statements.

    def is_final(self, state: Fleet) -> bool:
        """Return whether all are connected, and nothing is under way."""
        return all(
            not self._table.waits_for(node.state)
            and all(
                pair.link == CONNECTED and pair.phase == IDLE and not (pair.requests or pair.events or pair.answers)
                for pair in node.pairs
            )
            for node in state.nodes
        )

    def violation(self, state: Fleet) -> str:
        """Return what is wrong with a fleet at rest."""
        if not self.is_final(state):
            return ""
        servings = [self._table.serving(node.state) for node in state.nodes]
        managed = [serving for serving in servings if not desired_states.is_unmanaged(serving)]
        if not managed:  # nobody announces what is desired
            return ""
        desired = {coordinator.desired for coordinator in state.coordinators}
        if len(desired) > 1:
            return "coordinators disagree"
        (agreed,) = desired
        if any(agreed and desired_states.shared_part(serving) != agreed for serving in managed):
            return "a worker does not have the desired state"
        confirmed = tuple(sorted(_confirmed(state)))
        found = (undone(serving, self.scope.verbs, state.epochs, confirmed) for serving in managed)
        return next((text for text in found if text), "")

    def step_violation(self, before: Fleet, after: Fleet) -> str:
        """Return whether a coordinator that did not restart fell back to an older desired state."""
        for old, new in zip(before.coordinators, after.coordinators, strict=True):
            if desired_states.is_made_up(new.desired):
                return "a coordinator desires what nobody ordered"
            if old.nonce == new.nonce and desired_states.epoch_of(new.desired) < desired_states.epoch_of(old.desired):
                return "the epoch of a desired state went back"
        return ""


def _confirmed(state: Fleet) -> set[int]:
    """Return the operations that all workers confirmed."""
    return set.intersection(*(set(node.confirmed) for node in state.nodes))


def _absorb(node: WorkerNode) -> WorkerNode:
    """Read what says nothing new to a coordinator; operations may be confirmed by it."""
    confirmed, pairs = set(node.confirmed), []
    for pair in node.pairs:
        if pair.link == CONNECTED and (pair.events or pair.answers):
            events = pair.events
            while events and _is_old(events[0], pair):
                events = events[1:]
            old = [each for each in pair.answers if each.operation != ADOPTION and _is_old(each.serving, pair)]
            confirmed.update(each.operation for each in old if each.serving)
            answers = tuple(each for each in pair.answers if each not in old)
            pair = pair._replace(events=events, answers=answers)
        pairs.append(pair)
    return node._replace(confirmed=tuple(sorted(confirmed)), pairs=tuple(pairs))


def _is_old(serving: bytes, pair: Pair) -> bool:
    return not serving or desired_states.revision_of(serving) <= desired_states.revision_of(pair.received)


def _is_read(answer: Answer, c: int, pair: Pair) -> bool:
    return (answer.caller, answer.connection) == (c, pair.connection) and answer.operation != CATCH_UP


def _with_node(state: Fleet, w: int, node: WorkerNode) -> Fleet:
    return state._replace(nodes=(*state.nodes[:w], node, *state.nodes[w + 1 :]))


def _with_pair(state: Fleet, c: int, w: int, pair: Pair) -> Fleet:
    node = state.nodes[w]
    return _with_node(state, w, node._replace(pairs=(*node.pairs[:c], pair, *node.pairs[c + 1 :])))


def _with_coordinator(state: Fleet, c: int, coordinator: Coordinator) -> Fleet:
    coordinators = (*state.coordinators[:c], coordinator, *state.coordinators[c + 1 :])
    return state._replace(coordinators=coordinators)
