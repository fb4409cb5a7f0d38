"""The metrics of parsers."""

from tokenwire.coordinator.observability.metrics.parsers import ParserCollector
from tokenwire.coordinator.parsing.disagreements import Disagreements


def test_inconsistencies_are_counted_by_parser() -> None:
    """A parser without any has no series."""
    counts = Disagreements()
    (family,) = ParserCollector(counts).collect()
    assert family.samples == []
    counts.count("hermes")
    (family,) = ParserCollector(counts).collect()
    assert [(sample.name, sample.labels, sample.value) for sample in family.samples] == [
        ("tokenwire_parser_inconsistencies_total", {"parser": "hermes"}, 1)
    ]
