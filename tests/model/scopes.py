"""What is explored: by `make test`, and by `make test-long`."""

from collections.abc import Callable
from typing import NamedTuple

from tests.model.admin import AdminModel, Scope
from tests.model.explore import Exploration, explore
from tests.model.operations import Verb
from tests.model.real_worker import WorkerTable
from tests.model.replies import ReplyModel, ReplyScope
from tests.model.slots import SlotModel, SlotScope


class Row(NamedTuple):
    """One exploration."""

    name: str
    run: Callable[[], Exploration[tuple[object, ...]]]
    states: int
    """How many states it had when it was written: with fewer, it would miss something."""
    long: bool = False


def _admin(scope: Scope) -> Exploration[tuple[object, ...]]:
    table = WorkerTable()
    try:
        return explore(AdminModel(scope, table))
    finally:
        table.close()


def _slots(scope: SlotScope) -> Exploration[tuple[object, ...]]:
    model = SlotModel(scope)
    try:
        return explore(model)
    finally:
        model.close()


def _fleet(scope: Scope, states: int, long: bool = False) -> Row:
    verbs = " / ".join(f"`{verb.name.lower()}`" for verb in scope.verbs)
    counts = {
        "worker restart": scope.worker_restarts,
        "coordinator restart": scope.coordinator_restarts,
        "connection cut": scope.cuts,
        "direct change": scope.direct,
        "lie": scope.lies,
    }
    faults = "".join(f", {count} {name}{'s' * (count > 1)}" for name, count in counts.items() if count)
    return Row(f"{scope.coordinators} x {scope.workers}, {verbs}{faults}", lambda: _admin(scope), states, long)


def _session(name: str, scope: SlotScope, states: int, long: bool = False) -> Row:
    return Row(f"{scope.requests} requests, {name}", lambda: _slots(scope), states, long)


def _replies(scope: ReplyScope) -> Exploration[tuple[object, ...]]:
    model = ReplyModel(scope)
    try:
        return explore(model)
    finally:
        model.close()


def _reply(scope: ReplyScope, states: int) -> Row:
    counts = {"lost session": scope.losses, "drain": scope.drains}
    faults = "".join(f", {count} {name}{'s' * (count > 1)}" for name, count in counts.items() if count)
    others = ", a replay" * scope.replays + ", a client that leaves" * scope.leaves
    return Row(
        f"a reply of {scope.tokens} tokens on {scope.workers} workers{faults}{others}", lambda: _replies(scope), states
    )


PAUSE, WAIT, RESUME, LABEL, LOAD = Verb.PAUSE, Verb.PAUSE_WAIT, Verb.RESUME, Verb.LABEL, Verb.LOAD
ROWS = (
    _fleet(Scope((WAIT, RESUME), workers=1), 188),
    _fleet(Scope((WAIT, RESUME), coordinators=1), 407),
    _fleet(Scope((WAIT, RESUME), workers=1, worker_restarts=1), 6_373),
    _fleet(Scope((WAIT, RESUME), coordinators=1, worker_restarts=1), 3_649),
    _fleet(Scope((PAUSE, LABEL), coordinators=1, worker_restarts=1), 2_594),
    _fleet(Scope((LOAD, RESUME), coordinators=1, worker_restarts=1, cuts=1), 41_002),
    _fleet(Scope((WAIT, LOAD, RESUME), coordinators=1), 16_263),
    _fleet(Scope((PAUSE, LABEL), coordinators=1, worker_restarts=1, coordinator_restarts=1), 37_384),
    _fleet(Scope((PAUSE,), worker_restarts=1), 7_088),
    _fleet(Scope((PAUSE,), coordinator_restarts=1), 3_223),
    _fleet(Scope((PAUSE,), cuts=1), 2_211),
    _fleet(Scope((PAUSE,), direct=1), 2_585),
    _fleet(Scope((PAUSE, RESUME), workers=1, cuts=1), 1_333),
    _fleet(Scope((PAUSE, LABEL), workers=1, cuts=2), 5_084),
    _fleet(Scope((PAUSE, RESUME), coordinators=1, lies=2), 2_563),
    _fleet(Scope((PAUSE, LABEL), workers=1, coordinator_restarts=1, lies=1), 30_516),
    _fleet(Scope((PAUSE,), worker_restarts=1, coordinator_restarts=1), 120_636, long=True),
    _fleet(Scope((PAUSE, LABEL)), 118_249, long=True),
    _session("a stop string, aborts", SlotScope(2, frozenset({0}), aborts=True), 8_099),
    _session("aborts, a hand back", SlotScope(2, aborts=True, hand_back=True), 26_258),
    _session(
        "a stop string, aborts, a refusal, a hand back, a lost session",
        SlotScope(2, frozenset({0}), aborts=True, refusals=True, hand_back=True, losses=True),
        55_562,
    ),
    _session("a stop string, a refusal", SlotScope(3, frozenset({0}), refusals=True), 38_956),
    _reply(ReplyScope(4, 4, losses=3, leaves=True), 1_545),
    _reply(ReplyScope(losses=1, drains=1, leaves=True), 16_034),
    _reply(ReplyScope(losses=1, drains=1, replays=True, leaves=True), 17_426),
)
