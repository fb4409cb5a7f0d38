"""Token statistics of all sessions of a model, updated once per frame."""

from bisect import bisect_left
from collections.abc import Sequence

from tokenwire.v1 import inference_pb2 as pb

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
    """Inter-token latencies and overshoot tokens. Outlives the sessions that update it."""

    def __init__(self) -> None:
        self.gaps = [0] * (len(TOKEN_GAP_BOUNDS_S) + 1)
        """Histogram of tokens by the time since their sequence's previous ones; the last bucket is unbounded."""
        self.gaps_s = 0.0
        """The sum of these times."""
        self.overshoot_tokens = 0
        """Tokens received for sequences that had already ended or been aborted."""

    def add_gap(self, seconds: float, tokens: int) -> None:
        """Count tokens by the time since the previous ones."""
        self.gaps[bisect_left(TOKEN_GAP_BOUNDS_S, seconds)] += tokens
        self.gaps_s += seconds * tokens


class TokenGaps:
    """Measures the time between the tokens of one session's sequences."""

    __slots__ = ("_stats", "_tokens_at", "seconds", "tokens")

    def __init__(self, stats: SessionStats, started_at: float) -> None:
        self.seconds = 0.0
        """The sum of the times in which its sequences generated: each since its first token."""
        self.tokens = 0
        """What they got in them."""
        self._stats = stats
        self._tokens_at = started_at

    def on_frame(self, frame: pb.StepFrame, generating: int, now: float) -> None:
        """Count the tokens of a frame that has some, before it is dispatched, without first ones.

        `generating` is how many sequences had tokens before and have not ended. Each of them waits for the next one,
        whether the frame names it or not: a worker cannot make the time shorter by frames that bring them nothing.
        """
        gap_s, self._tokens_at = now - self._tokens_at, now
        begun = len(frame.prefills)
        decoding = len(frame.slots) - begun
        if frame.counts:
            decoding -= frame.counts[:].count(0)
        if decoding > 0:
            self._stats.add_gap(gap_s, decoding)
        if generating:
            self.seconds += gap_s * generating
            tokens = len(frame.token_ids) - begun
            if tokens > 0:
                self.tokens += tokens


StatsByModel = dict[str, SessionStats]
"""By the first name of the model."""


def buckets(counts: Sequence[int], bounds: Sequence[float] = TOKEN_GAP_BOUNDS_S) -> Sequence[tuple[str, float]]:
    """Return cumulative counts by upper bound, in Prometheus' form; the last count has none."""
    result, total = [], 0
    for bound, count in zip((*map(str, bounds), "+Inf"), counts, strict=True):
        total += count
        result.append((bound, float(total)))
    return result
