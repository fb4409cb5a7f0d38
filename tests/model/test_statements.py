"""The statements hold in every state of every scope, and a fault in a step is found with its shortest trace."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import pytest

from tests.model import real_desired
from tests.model.admin import AdminModel, Scope
from tests.model.explore import explore
from tests.model.operations import Verb
from tests.model.real_failover import FailoverEnd
from tests.model.real_session import CoordinatorEnd
from tests.model.real_worker import WorkerTable
from tests.model.replies import ReplyModel, ReplyScope
from tests.model.scopes import ROWS, Row
from tests.model.slots import SlotModel, SlotScope
from tests.model.stepped_loop import SteppedLoop
from tokenwire.coordinator.fleet.failover.replay import Replay
from tokenwire.coordinator.fleet.request_handle import NEW, Placement, SubmissionHandle
from tokenwire.coordinator.fleet.slots import SlotListener
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.v1 import inference_pb2 as pb

pytestmark = [pytest.mark.ci, pytest.mark.slow]

PARAMETERS = [pytest.param(row, id=row.name, marks=[pytest.mark.long] if row.long else []) for row in ROWS]


@pytest.mark.parametrize("row", PARAMETERS)
def test_no_state_violates_a_statement(row: Row) -> None:
    """And there are as many states as there were: a model in which nothing happens violates nothing, and if there are
    others, the real code does something else. Look for what that is before you write another number.
    """
    found = row.run()

    assert found.violation is None, str(found.violation)
    assert found.states == row.states
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


class _Deaf(CoordinatorEnd):
    """Drops the tokens of a frame that ends a sequence."""

    def __init__(self, loop: SteppedLoop, requests: int, stopping: frozenset[int]) -> None:
        super().__init__(loop, requests, stopping)
        self._on_frame = self.session._on_frame
        self.session._on_frame = self._take  # type: ignore[method-assign]

    def _take(self, frame: pb.StepFrame) -> Iterable[pb.StepFrame]:
        if frame.finishes:
            frame = pb.StepFrame(finishes=frame.finishes)
        return self._on_frame(frame)


class _Stutterer(CoordinatorEnd):
    """Passes the tokens of a frame on twice."""

    def __init__(self, loop: SteppedLoop, requests: int, stopping: frozenset[int]) -> None:
        super().__init__(loop, requests, stopping)
        for recorder in self._recorders:
            recorder.step = _twice(recorder.step)  # type: ignore[method-assign, assignment]


def _twice(step: Callable[[list[int], pb.Finish | None], bool]) -> Callable[[list[int], pb.Finish | None], bool]:
    return lambda token_ids, finish: step([*token_ids, *token_ids], finish)


@pytest.mark.parametrize(("coordinator", "text"), [(_Deaf, "lost their tokens"), (_Stutterer, "got its token twice")])
def test_a_token_that_is_lost_or_doubled_in_a_slot_is_found(coordinator: type[CoordinatorEnd], text: str) -> None:
    """Even if every slot has its one end."""
    model = SlotModel(SlotScope(2), coordinator)
    violation = explore(model).violation
    model.close()

    assert violation is not None
    assert text in violation.text


class _OneTooEarly(FailoverEnd):
    """Resumes at the token before the one that is next."""

    def submit(
        self, model: str, submission: Submission, listeners: Sequence[SlotListener], placement: Placement = NEW
    ) -> SubmissionHandle:
        if placement.resumed and len(submission.prompt_token_ids) > 1:
            submission = replace(submission, prompt_token_ids=submission.prompt_token_ids[:-1])
        return super().submit(model, submission, listeners, placement)


class _OneTooMany(FailoverEnd):
    """Lets a resumed reply have one token more than is left."""

    def submit(
        self, model: str, submission: Submission, listeners: Sequence[SlotListener], placement: Placement = NEW
    ) -> SubmissionHandle:
        if placement.resumed and submission.max_tokens is not None:
            submission = replace(submission, max_tokens=submission.max_tokens + 1)
        return super().submit(model, submission, listeners, placement)


class _Repeater(FailoverEnd):
    """Believes that the client has one token less than it has, when it generates a reply again."""

    def submit(
        self, model: str, submission: Submission, listeners: Sequence[SlotListener], placement: Placement = NEW
    ) -> SubmissionHandle:
        for listener in listeners:
            if isinstance(listener, Replay):
                listener._expected = listener._expected[:-1]
        return super().submit(model, submission, listeners, placement)


@pytest.mark.parametrize(
    ("coordinator", "scope", "text"),
    [
        (_OneTooEarly, ReplyScope(losses=1), "got the tokens [0, 0]"),
        (_OneTooEarly, ReplyScope(drains=1), "got the tokens [0, 0]"),
        (_OneTooMany, ReplyScope(losses=1), "got 4 tokens"),
        (_Repeater, ReplyScope(losses=1, replays=True), "got the tokens [0, 0]"),
    ],
)
def test_a_reply_that_goes_on_at_another_position_is_found(
    coordinator: type[FailoverEnd], scope: ReplyScope, text: str
) -> None:
    """Each token is the client's exactly once, and in order."""
    model = ReplyModel(scope, coordinator)
    violation = explore(model).violation
    model.close()

    assert violation is not None
    assert text in violation.text, str(violation)
