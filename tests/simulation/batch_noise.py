"""Tokens of an engine that is not batch-invariant: some depend on what else it computes, as on most GPUs."""

from tokenwire.worker.simulated_engine.tokens import TokenSource, stable_hash

_TIE_EVERY = 8
"""One token of so many is nearly as likely as another one, so that the rest of the batch decides."""


class BatchNoiseSource(TokenSource):
    """Draws the tokens of a sequence in a batch."""

    __slots__ = ("_noise",)

    def __init__(self, source: TokenSource, batch: tuple[str, int]) -> None:
        """`source` draws what it would generate alone; `batch`: the engine, and how many sequences it has besides."""
        super().__init__(source._rules, source.context, source._key)
        self._state = source._state
        self._noise = stable_hash(*batch) if batch[1] else 0

    def take(self, count: int) -> list[int]:
        """Draw one token: the noise of each depends on the ids before it."""
        if (self.context >> 20) % _TIE_EVERY:
            return super().take(1)
        key, state = self._key, self._state
        self._key, self._state = key ^ self._noise & 0xFFFFFFF, state ^ self._noise
        ids = super().take(1)
        self._key = key
        return ids
