"""Which sequences are taken back for a tenant that waits."""

from collections.abc import Iterable

from tests.workers import Listener, accept
from tokenwire.coordinator.fleet.failover.preemption import MOST_AT_ONCE, choose, late_in_engines
from tokenwire.coordinator.fleet.failover.sequence import ResumableRequest, ResumableSequence
from tokenwire.coordinator.fleet.request_handle import LateTenant, Placement
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.v1 import inference_pb2 as pb

from .recording_policy import RecordingPolicy


def busy_worker(waiting: int = 0) -> WorkerSession:
    """Return a worker in whose engine so many sequences wait."""
    session = WorkerSession("w", "test", accept)
    session.workload.load = pb.Load(waiting=waiting)
    return session


def placed_for(
    session: WorkerSession, tenant: str, tokens: Iterable[int], weight: int = 1, priority: int = 0
) -> list[ResumableSequence]:
    """Return sequences of a tenant with so many tokens each."""
    sequences = []
    for count in tokens:
        request = ResumableRequest("m", Submission(priority=priority), Placement(tenant=tenant, weight=weight))
        (sequence,) = request.listen([Listener()], RecordingPolicy())
        sequence.set_worker(session)
        if count:
            sequence.step([1] * count, None)
        sequences.append(sequence)
    return sequences


def late_for(
    session: WorkerSession, sequences: int = 1, weight: int = 1, priority: int = 0, ahead: tuple[str, ...] = ()
) -> LateTenant:
    """Return a tenant that waits, and has had more work than some others."""
    placement = Placement(tenant="late", weight=weight)
    return LateTenant(placement, priority, sequences, [session], lambda other: other not in ahead)


def may_move(sequence: ResumableSequence) -> bool:
    """Return that it may go on elsewhere."""
    return True


def test_the_one_with_the_fewest_tokens_goes() -> None:
    """It is the cheapest to compute again."""
    session = busy_worker()
    live = placed_for(session, "greedy", [30, 10, 20])

    assert choose(late_for(session), live, may_move) == [live[1]]


def test_what_waits_in_the_same_engine_goes_too() -> None:
    """It would be next there: as many as the engine says that wait, the newest."""
    session = busy_worker(waiting=2)
    live = placed_for(session, "greedy", [30, 10, 0, 0, 0])

    assert choose(late_for(session), live, may_move) == [live[1], *live[3:]]


def test_of_what_has_no_tokens_the_newest_goes() -> None:
    """An engine computes the oldest: of four of greedy's it says that three wait, and one of the late tenant."""
    session = busy_worker(waiting=4)
    live = placed_for(session, "greedy", [0, 0, 0, 0])
    late = placed_for(session, "late", [0])

    assert choose(late_for(session), [*live, *late], may_move) == [live[3], live[1], live[2]]


def test_nobody_is_left_with_less_than_the_one_that_waits_has_then() -> None:
    """So places go back and forth for nobody."""
    session = busy_worker()
    greedy, late = placed_for(session, "greedy", [1] * 9), placed_for(session, "late", [1] * 4)
    assert len(choose(late_for(session, 8), [*greedy, *late], may_move)) == 2
    assert len(choose(late_for(session, 8), [*greedy[:6], *late], may_move)) == 1

    assert not choose(late_for(session, 8), [*greedy[:5], *late], may_move)
    assert not choose(late_for(session), greedy[:1], may_move)


def test_weights_decide_what_is_more() -> None:
    """A tenant of three times the weight may keep three times as many."""
    session = busy_worker()
    live = [*placed_for(session, "heavy", [1] * 6, weight=3), *placed_for(session, "light", [1] * 4)]

    assert choose(late_for(session), live, may_move) == live[6:7]
    assert len(choose(late_for(session, 8, weight=3), live, may_move)) == 4


def test_only_a_few_go_at_a_time() -> None:
    """They are computed again."""
    session = busy_worker()

    assert len(choose(late_for(session, 100), placed_for(session, "greedy", [1] * 50), may_move)) == MOST_AT_ONCE


def test_who_would_be_next_again_keeps_its_places() -> None:
    """One that has had less work, or whose requests are more urgent; also what cannot go on exactly."""
    session = busy_worker()
    live = placed_for(session, "greedy", [1] * 9)
    urgent, other = placed_for(session, "greedy", [1] * 9, priority=-1), busy_worker()

    assert not choose(late_for(session, ahead=("greedy",)), live, may_move)
    assert choose(late_for(session, priority=-1, ahead=("greedy",)), live, may_move) == live[:1]
    assert not choose(late_for(session), urgent, may_move)
    assert not choose(late_for(session), live, lambda sequence: False)
    assert not choose(late_for(other), live, may_move)
    assert not choose(late_for(session), placed_for(session, "late", [1] * 9), may_move)


def test_a_sequence_that_waits_in_an_engine_is_late() -> None:
    """After that time, and the time that its own prompt takes: others may wait behind it."""
    session, idle = busy_worker(waiting=1), busy_worker()
    waiting, generating = placed_for(session, "small", [0, 5])
    others = placed_for(idle, "small", [0])
    for each in (waiting, generating, *others):
        each.placed_at -= 10

    (late,) = late_in_engines([waiting, generating, *others], 5)
    assert (late.placement.tenant, late.sequences, late.workers) == ("small", 1, [session])
    assert not late_in_engines([waiting], 60)
    session.workload.on_submit([0], 1_000_000)
    assert late_in_engines([waiting], 5)
    waiting.request.submission.prompt_token_ids = [1] * 10_000

    assert not late_in_engines([waiting], 5)
