"""The time since an engine's last step, and the part of it that is expected."""

import pytest

from tests.clock import Clock
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.frame_buffer import FrameBuffer
from tokenwire.worker.engine.interface import EngineSequence, Step
from tokenwire.worker.engine.stall_detector import StallDetector


@pytest.fixture
def detector(time: Clock) -> StallDetector:
    """A detector of an engine past its first steps, which steps every 10 ms."""
    detector, sequence = StallDetector(time), _sequence()
    detector.on_submitted([sequence], 10)
    for _ in range(100):
        time.now += 0.01
        detector.on_step(Step(sequences=[sequence], token_ids=[[1]], prefills=[(sequence, pb.PrefillInfo())]))
    detector.on_step(Step(sequences=[sequence], token_ids=[[1]], finishes=[(sequence, pb.Finish())]))
    return detector


def _sequence() -> EngineSequence:
    return EngineSequence(FrameBuffer(), 0, "request", 0)


def test_an_idle_engine_does_not_stall(time: Clock, detector: StallDetector) -> None:
    """Without sequences no time is counted; it starts with the first one."""
    time.now += 100
    assert detector.stalled_s == 0

    detector.on_submitted([_sequence()], 0)
    time.now += 2
    assert detector.stalled_s == pytest.approx(2)


def test_an_abort_is_no_step(time: Clock, detector: StallDetector) -> None:
    """The finish of an aborted sequence is not progress of the engine; a step without tokens is."""
    first, second = _sequence(), _sequence()
    detector.on_submitted([first, second], 0)
    time.now += 2
    detector.on_step(Step(finishes=[(first, pb.Finish(reason=pb.FINISH_REASON_ABORT))]))
    assert detector.stalled_s == pytest.approx(2)

    detector.on_step(Step())
    assert detector.stalled_s == 0


def test_prompts_and_long_steps_raise_the_allowance(time: Clock, detector: StallDetector) -> None:
    """Pending prompts raise it by their length, up to one chunk; earlier long steps raise it too."""
    assert detector.allowance_s == pytest.approx(0.03, abs=0.001)
    sequence = _sequence()
    detector.on_submitted([sequence], 1000)
    assert detector.allowance_s == pytest.approx(2.03, abs=0.001)
    detector.on_submitted([_sequence()], 1_000_000)
    assert detector.allowance_s == pytest.approx(16.4, abs=0.1)

    time.now += 5
    detector.on_step(Step(prefills=[(sequence, pb.PrefillInfo())]))
    assert detector.allowance_s == pytest.approx(15 + 16.4, abs=0.1)


def test_a_new_engine_has_a_long_allowance(time: Clock) -> None:
    """It compiles in its first steps."""
    assert StallDetector(time).allowance_s >= 60


def test_a_reset_restarts_the_measurement(time: Clock, detector: StallDetector) -> None:
    """Time before a reset does not count."""
    detector.on_submitted([_sequence()], 0)
    time.now += 50
    detector.reset()
    time.now += 1
    assert detector.stalled_s == pytest.approx(1)
