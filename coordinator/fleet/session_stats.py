"""What sessions count, all of a model's together: once for each frame."""

from bisect import bisect_left
from collections.abc import Sequence

TOKEN_GAP_BOUNDS_S = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.02,
    0.03,
    0.05,
    0.075,
    0.1,
    0.15,
    0.2,
    0.3,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
)


class SessionStats:
    """Gaps between tokens, and tokens that came in vain. It outlives the sessions that count in it."""

    def __init__(self) -> None:
        self.gaps = [0] * (len(TOKEN_GAP_BOUNDS_S) + 1)
        """Tokens by the time since their sequence's last ones: so many up to each bound, the rest at the end."""
        self.gaps_s = 0.0
        """The sum of these times."""
        self.overshoot_tokens = 0
        """Tokens for sequences that had been given up."""

    def add_gap(self, seconds: float, tokens: int) -> None:
        """Count tokens that came so long after those before them."""
        self.gaps[bisect_left(TOKEN_GAP_BOUNDS_S, seconds)] += tokens
        self.gaps_s += seconds * tokens


StatsByModel = dict[str, SessionStats]
"""By the first name of the model."""


def buckets(stats: SessionStats) -> Sequence[tuple[str, float]]:
    """Return cumulated counts by upper bound, as Prometheus has them."""
    result, total = [], 0
    for bound, count in zip((*map(str, TOKEN_GAP_BOUNDS_S), "+Inf"), stats.gaps, strict=True):
        total += count
        result.append((bound, float(total)))
    return result
