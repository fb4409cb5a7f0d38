"""How fast a worker generates, by what it has sent since the last check."""

import pytest

from tests.clock import Clock
from tests.coordinator.fleet.test_outliers import PacedWorker
from tokenwire.coordinator.fleet.token_pace import TokenPace, usual_s


class Checked:
    """A worker with a request, and its pace."""

    def __init__(self) -> None:
        self.time = Clock()
        self.worker = PacedWorker("w", clock=self.time)
        self.worker.take()
        assert self.worker.gaps is not None
        self.pace = TokenPace(self.worker.gaps, self.time.now, self.time.now, 0)

    def run(self, seconds: int, gap_s: float = 1e9) -> None:
        """Let time pass, with a check each second."""
        self.worker.gap_s = gap_s
        for _ in range(seconds):
            self.time.now += 1
            self.worker.run(1.0)
            self.pace.update(self.worker, self.time.now)


@pytest.fixture
def checked() -> Checked:
    """Such a worker."""
    return Checked()


def test_a_pace_is_known_after_ten_seconds_in_which_somebody_waited(checked: Checked) -> None:
    """What is usual is known after three checks with tokens."""
    checked.run(2, 0.1)
    assert (checked.pace.typical_s(), checked.pace.mean_s()) == (None, None)
    checked.run(1, 0.1)
    assert checked.pace.typical_s() == pytest.approx(0.1)
    checked.run(6, 0.1)
    assert checked.pace.mean_s() is None
    checked.run(1, 0.1)
    assert checked.pace.mean_s() == pytest.approx(0.1)


def test_each_token_counts_as_much(checked: Checked) -> None:
    """Five quick ones after nine seconds are two seconds for each, not twenty milliseconds."""
    for _ in range(3):
        checked.run(8)
        checked.worker.burst(5, after_s=8.9)
        checked.run(1)
    mean_s, typical_s = checked.pace.mean_s(), checked.pace.typical_s()
    assert mean_s == typical_s == pytest.approx((8.9 + 4 * 0.02) / 5)


def test_time_without_tokens_counts_with_the_next_ones(checked: Checked) -> None:
    """What a frame of first tokens had of it, too."""
    assert checked.worker.gaps is not None
    for _ in range(4):
        checked.worker.gaps.seconds += 3.0
        checked.run(3)
        checked.worker.burst(1, after_s=1.0)
        checked.run(1)
    assert checked.pace.mean_s() == pytest.approx(4.0)


def test_the_slowest_check_is_left_out(checked: Checked) -> None:
    """It may have been an accident."""
    checked.run(9, 0.1)
    checked.worker.burst(1, after_s=60.0)
    checked.run(1)
    assert checked.pace.mean_s() == pytest.approx(0.1)


def test_only_the_last_checks_count(checked: Checked) -> None:
    """A worker that was slow is not for ever."""
    checked.run(20, 0.5)
    checked.run(11, 0.1)
    assert checked.pace.mean_s() == pytest.approx(0.1)


def test_what_was_paused_does_not_count(checked: Checked) -> None:
    """Nor does time in which nobody waited."""
    checked.run(5, 0.1)
    checked.worker.generates = False
    checked.run(30)
    checked.worker.generates = True
    checked.run(4, 0.1)
    assert checked.pace.mean_s() is None
    checked.run(1, 0.1)
    assert checked.pace.mean_s() == pytest.approx(0.1)


def test_the_middle_one_of_several_is_usual(checked: Checked) -> None:
    """Of those that are known."""
    assert usual_s([checked.pace]) is None
    others = [Checked() for _ in range(3)]
    for other, gap_s in zip(others, (0.1, 0.2, 5.0), strict=True):
        other.run(30, gap_s)
    assert usual_s([checked.pace, *(other.pace for other in others)]) == pytest.approx(0.2)
