"""How long an engine has made no step, and what of that is in order."""

import pytest

from tests.clock import Clock
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine import Sequence, Step
from tokenwire.worker.frame_buffer import Outbox
from tokenwire.worker.stall_detector import StallDetector


@pytest.fixture
def time() -> Clock:
    """The time."""
    return Clock()


@pytest.fixture
def clock(time: Clock) -> StallDetector:
    """A clock of an engine that is not new any more, and whose steps take 10 ms."""
    clock, sequence = StallDetector(time), _sequence()
    clock.submitted([sequence], 10)
    for _ in range(100):
        time.now += 0.01
        clock.stepped(Step(sequences=[sequence], token_ids=[[1]], prefills=[(sequence, pb.PrefillInfo())]))
    clock.stepped(Step(sequences=[sequence], token_ids=[[1]], finishes=[(sequence, pb.Finish())]))
    return clock


def _sequence() -> Sequence:
    return Sequence(Outbox(), 0, "request", 0)


def test_an_idle_engine_does_not_stall(time: Clock, clock: StallDetector) -> None:
    """Without sequences no time is counted, and the first one's begins when it comes."""
    time.now += 100
    assert clock.stalled_s == 0

    clock.submitted([_sequence()], 0)
    time.now += 2
    assert clock.stalled_s == pytest.approx(2)


def test_aborted_sequences_are_no_step(time: Clock, clock: StallDetector) -> None:
    """The end of a sequence that nobody wants any more says nothing of the engine; a step without tokens does."""
    first, second = _sequence(), _sequence()
    clock.submitted([first, second], 0)
    time.now += 2
    clock.stepped(Step(finishes=[(first, pb.Finish(reason=pb.FINISH_REASON_ABORT))]))
    assert clock.stalled_s == pytest.approx(2)

    clock.stepped(Step())
    assert clock.stalled_s == 0


def test_prompts_and_long_steps_are_in_order(time: Clock, clock: StallDetector) -> None:
    """Pending prompts allow time by their length, up to a chunk's; steps that were long before may be so again."""
    assert clock.allowance_s == pytest.approx(0.03, abs=0.001)
    sequence = _sequence()
    clock.submitted([sequence], 1000)
    assert clock.allowance_s == pytest.approx(2.03, abs=0.001)
    clock.submitted([_sequence()], 1_000_000)
    assert clock.allowance_s == pytest.approx(16.4, abs=0.1)

    time.now += 5
    clock.stepped(Step(prefills=[(sequence, pb.PrefillInfo())]))
    assert clock.allowance_s == pytest.approx(15 + 16.4, abs=0.1)


def test_a_new_engine_may_take_its_time(time: Clock) -> None:
    """It compiles in its first steps."""
    assert StallDetector(time).allowance_s >= 60


def test_pauses_are_excused(time: Clock, clock: StallDetector) -> None:
    """What passed until then does not count."""
    clock.submitted([_sequence()], 0)
    time.now += 50
    clock.allow()
    time.now += 1
    assert clock.stalled_s == pytest.approx(1)
