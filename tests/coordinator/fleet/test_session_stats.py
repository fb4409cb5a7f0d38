"""What sessions count."""

from tokenwire.coordinator.fleet.session_stats import Tally, buckets
from tokenwire.coordinator.fleet.slots import Deaf


def test_gaps_are_counted_by_token_in_cumulated_buckets() -> None:
    """A frame of many sequences counts for each of them."""
    tally = Tally()
    tally.add_gap(0.010, 3)
    tally.add_gap(60.0, 1)
    counted = dict(buckets(tally))
    assert counted["0.005"] == 0
    assert counted["0.01"] == counted["10.0"] == 3
    assert counted["+Inf"] == 4
    assert tally.gaps_s == 60.03


def test_tokens_for_slots_that_were_given_up_are_counted() -> None:
    """Whoever stands in for a listener counts what comes in vain."""
    tally = Tally()
    Deaf(tally).step([1, 2], None)
    assert tally.overshoot_tokens == 2
