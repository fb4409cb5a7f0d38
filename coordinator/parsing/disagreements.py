"""Counts replies that vLLM's parsers parse differently as a stream and as a whole."""

from collections import Counter


class Disagreements:
    """Counts by the operator's names of the parsers."""

    def __init__(self) -> None:
        self.by_parser: Counter[str] = Counter()

    def count(self, parser: str) -> None:
        """Count one reply."""
        self.by_parser[parser] += 1
