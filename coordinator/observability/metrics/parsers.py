"""Collects how often parsers disagreed with themselves."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from tokenwire.coordinator.parsing.disagreements import Disagreements


class ParserCollector(Collector):
    """Collector of the parsers of all models."""

    def __init__(self, disagreements: Disagreements) -> None:
        self._disagreements = disagreements

    def collect(self) -> Iterator[Metric]:
        """Return the family."""
        family = CounterMetricFamily(
            "tokenwire_parser_inconsistencies",
            "Replies of which a parser makes something else as a stream than as a whole, and that are as streamed.",
            labels=("parser",),
        )
        for parser, count in self._disagreements.by_parser.items():
            family.add_metric((parser,), count)
        yield family
