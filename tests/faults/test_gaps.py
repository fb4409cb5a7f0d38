"""The gaps around a fault, from which the plot is drawn."""

from tests.faults.scenarios import Gaps, gaps_around


def test_gaps_are_grouped_by_the_interval_in_which_they_end() -> None:
    """Relative to the fault, over all streams: the median and the longest."""
    streams = [[99.96, 100.01, 100.04], [99.92, 100.02], [100.0, 100.16]]

    assert gaps_around(100.0, streams) == (Gaps(0.0, 50.0, 100.0), Gaps(0.15, 160.0, 160.0))


def test_a_stream_of_one_arrival_has_no_gap() -> None:
    """Nor has one without any."""
    assert gaps_around(0.0, [[1.0], []]) == ()
