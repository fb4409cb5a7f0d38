"""Statistics of sessions."""

from tokenwire.coordinator.fleet.session_stats import SessionStats, buckets
from tokenwire.coordinator.fleet.slots import DiscardListener


def test_gaps_are_counted_by_token_in_cumulative_buckets() -> None:
    """A frame of many sequences counts for each of them."""
    stats = SessionStats()
    stats.add_gap(0.010, 3)
    stats.add_gap(60.0, 1)
    counted = dict(buckets(stats))
    assert counted["0.005"] == 0
    assert counted["0.01"] == counted["10.0"] == 3
    assert counted["+Inf"] == 4
    assert stats.gaps_s == 60.03


def test_tokens_for_aborted_slots_are_counted() -> None:
    """The listener of aborted slots counts overshoot tokens."""
    stats = SessionStats()
    discard = DiscardListener(stats)
    discard.step([1, 2], None)
    discard.step([3], None)
    assert stats.overshoot_tokens == 3
