"""The statements hold in every state of every scope, and a fault in a step is found with its shortest trace."""

import pytest

from tests.model import real_desired
from tests.model.admin import AdminModel, Scope
from tests.model.explore import explore
from tests.model.operations import Verb
from tests.model.real_session import CoordinatorEnd
from tests.model.real_worker import WorkerTable
from tests.model.scopes import ROWS, Row
from tests.model.slots import SlotModel, SlotScope
from tests.model.stepped_loop import SteppedLoop

PARAMETERS = [pytest.param(row, id=row.name, marks=[pytest.mark.long] if row.long else []) for row in ROWS]


@pytest.mark.parametrize("row", PARAMETERS)
def test_no_state_violates_a_statement(row: Row) -> None:
    """And there are as many states as there were: a model in which nothing happens violates nothing."""
    found = row.run()

    assert found.violation is None, str(found.violation)
    assert found.states >= row.states
    assert found.final


class _Forgetful(AdminModel):
    """Desires whatever was announced last."""

    def _observed(self, desired: bytes, serving: bytes) -> bytes:
        return real_desired.shared_part(serving)


class _Shallow(AdminModel):
    """Follows nothing but the newest operation."""

    def _observed(self, desired: bytes, serving: bytes) -> bytes:
        return real_desired.newest_alone(super()._observed(desired, serving))


class _Gullible(AdminModel):
    """Believes a hostile worker."""

    def _observed(self, desired: bytes, serving: bytes) -> bytes:
        return serving if serving == real_desired.forged() else super()._observed(desired, serving)


@pytest.mark.parametrize(
    ("model", "scope", "text", "steps"),
    [
        (_Forgetful, Scope((Verb.PAUSE,), worker_restarts=1), "went back", 6),
        (_Shallow, Scope((Verb.PAUSE, Verb.LABEL), 1, workers=1), "does not have the desired state", 5),
        (_Gullible, Scope((Verb.PAUSE,), 1, workers=1, lies=1), "what nobody ordered", 1),
    ],
)
def test_a_fault_of_a_coordinator_is_found(model: type[AdminModel], scope: Scope, text: str, steps: int) -> None:
    """With a trace that no other is shorter than."""
    table = WorkerTable()
    violation = explore(model(scope, table)).violation
    table.close()

    assert violation is not None
    assert text in violation.text
    assert len(violation.trace) == steps, str(violation)


class _Careless(CoordinatorEnd):
    """Frees the slot of an aborted sequence before its terminal event."""

    def __init__(self, loop: SteppedLoop, requests: int, stopping: frozenset[int]) -> None:
        super().__init__(loop, requests, stopping)
        table = self.session._slots
        table.give_up = table.release  # type: ignore[method-assign, assignment]


def test_a_slot_that_is_reused_too_early_is_found() -> None:
    """Abort, and the next request gets a slot that the worker has not ended."""
    model = SlotModel(SlotScope(2, aborts=True), _Careless)
    violation = explore(model).violation
    model.close()

    assert violation is not None
    assert "slots in use" in violation.text
    assert len(violation.trace) == 6, str(violation)
