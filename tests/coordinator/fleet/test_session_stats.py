"""Statistics of sessions."""

from tokenwire.coordinator.fleet.session_stats import SessionStats, TokenGaps, buckets
from tokenwire.coordinator.fleet.slots import DiscardListener
from tokenwire.v1 import inference_pb2 as pb


def test_gaps_are_counted_by_token_in_cumulative_buckets() -> None:
    """A frame of many sequences counts for each of them."""
    stats = SessionStats()
    stats.add_gap(0.010, 3)
    stats.add_gap(60.0, 1)
    counted = dict(buckets(stats.gaps))
    assert counted["0.005"] == 0
    assert counted["0.01"] == counted["10.0"] == 3
    assert counted["+Inf"] == 4
    assert stats.gaps_s == 60.03


def test_a_gap_is_the_time_since_the_frame_before() -> None:
    """For every sequence that had tokens before: not for those that have just begun."""
    stats = SessionStats()
    gaps = TokenGaps(stats, 10.0)
    gaps.on_frame(pb.StepFrame(slots=[0], token_ids=[5], prefills=[pb.PrefillInfo(slot=0)]), 0, 11.0)
    gaps.on_frame(pb.StepFrame(slots=[0], token_ids=[5]), 1, 11.25)
    gaps.on_frame(pb.StepFrame(slots=[0, 1, 2], token_ids=[5] * 3, prefills=[pb.PrefillInfo(slot=2)]), 2, 11.75)

    assert (stats.gaps_s, sum(stats.gaps)) == (gaps.seconds, gaps.tokens) == (0.25 + 2 * 0.5, 3)


def test_sequences_that_a_frame_brings_nothing_wait_on() -> None:
    """Whether it names them or not: ten sequences that get a token in turn wait for ten times as long."""
    stats = SessionStats()
    gaps = TokenGaps(stats, 0.0)
    for number in range(20):
        gaps.on_frame(pb.StepFrame(slots=[number % 10, 11], counts=[1, 0], token_ids=[5]), 10, 0.5 * (number + 1))

    assert gaps.seconds / gaps.tokens == 5.0
    assert sum(stats.gaps) == 20


def test_tokens_of_several_steps_count_each() -> None:
    """Frames may be merged."""
    gaps = TokenGaps(SessionStats(), 0.0)
    gaps.on_frame(pb.StepFrame(slots=[0, 1], counts=[3, 1], token_ids=[5] * 4), 2, 1.0)

    assert (gaps.seconds, gaps.tokens) == (2.0, 4)


def test_tokens_for_aborted_slots_are_counted() -> None:
    """The listener of aborted slots counts overshoot tokens."""
    stats = SessionStats()
    discard = DiscardListener(stats)
    discard.step([1, 2], None)
    discard.step([3], None)
    assert stats.overshoot_tokens == 3
