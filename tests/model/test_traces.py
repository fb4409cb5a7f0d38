"""The code does what the model says, step by step: whole fleets of real code are driven by its traces."""

import random
from collections.abc import Iterator

import pytest

from tests.model.admin import AdminModel, Fleet, Happening, Scope
from tests.model.explore import Explorer
from tests.model.operations import Verb, undone
from tests.model.real_fleet import RealFleet
from tests.model.real_worker import WorkerTable

pytestmark = pytest.mark.slow

ALL = Scope(tuple(Verb), worker_restarts=1, coordinator_restarts=1, cuts=1, direct=1, lies=1)


@pytest.fixture
def table() -> Iterator[WorkerTable]:
    """The states of workers."""
    table = WorkerTable()
    yield table
    table.close()


def drawn(model: AdminModel, seed: int, steps: int) -> list[Happening]:
    """Draw a trace."""
    chance, state, trace = random.Random(seed), model.initial(), []
    for _ in range(steps):
        happening, state = chance.choice(list(model.steps(state)))
        trace.append(happening)
        if model.is_final(state) and not state.left:
            break
    return trace


def follow(model: AdminModel, trace: list[Happening]) -> Fleet:
    """Drive a real fleet by a trace; return where the model ended, and so did the fleet."""
    fleet = RealFleet(model)
    try:
        return fleet.follow(trace)
    finally:
        fleet.close()


@pytest.mark.parametrize("verbs", [(Verb.PAUSE_WAIT, Verb.RESUME), (Verb.LOAD, Verb.RESUME)])
def test_all_short_traces_lead_the_code_where_they_lead_the_model(table: WorkerTable, verbs: tuple[Verb, Verb]) -> None:
    """The shortest one to each state."""
    model = AdminModel(Scope(verbs, coordinators=1, worker_restarts=1), table)
    explorer = Explorer(model)
    explorer.run()
    traces = list(explorer.traces(depth=7))

    assert len(traces) > 250
    for trace in traces:
        follow(model, list(trace))


def test_long_random_traces_lead_the_code_where_they_lead_the_model(table: WorkerTable) -> None:
    """With every operation and every fault."""
    model = AdminModel(ALL, table)
    traces = [drawn(model, seed, 100) for seed in range(80)]

    assert sum(len(trace) for trace in traces) > 2_000
    assert {happening.kind for trace in traces for happening in trace} >= {
        *("begin", "deliver", "receive", "answer", "look again", "connect", "cut", "restart", "resume directly", "lie"),
        *("sequences done", "weights done"),
    }
    for trace in traces:
        follow(model, trace)


class _Idle(AdminModel):
    """A model whose coordinators never reconcile what they receive later."""

    def _consider(self, state: Fleet, c: int, w: int) -> Fleet:
        return state


def test_a_model_that_differs_from_the_code_is_noticed(table: WorkerTable) -> None:
    """Otherwise agreement would mean nothing."""
    model = _Idle(Scope((Verb.PAUSE,)), table)

    with pytest.raises(AssertionError, match="after step"):
        follow(model, drawn(model, 0, 100))


def test_a_worker_catches_up_before_the_next_operation(table: WorkerTable) -> None:
    """It restarts after a pause that all workers confirmed, and the next operation comes before it was reconciled."""
    model = AdminModel(Scope((Verb.PAUSE, Verb.LABEL), 1, 1, worker_restarts=1), table)
    trace = [
        *(Happening("begin", 0, detail=0), Happening("deliver", 0, 0), Happening("receive", 0, 0)),
        *(Happening("answer", 0, 0, 0), Happening("restart", worker=0), Happening("connect", 0, 0)),
        *(Happening("receive", 0, 0), Happening("begin", 0, detail=1)),
        *(Happening("deliver", 0, 0),) * 3,
    ]

    state = follow(model, trace)

    assert not undone(model.key(state.nodes[0].state).serving, model.scope.verbs, state.epochs, (0, 1))
