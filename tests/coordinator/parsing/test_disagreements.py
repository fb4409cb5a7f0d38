"""Counts of replies."""

from tokenwire.coordinator.parsing.disagreements import Disagreements


def test_replies_are_counted_by_parser() -> None:
    """By the operator's names."""
    counts = Disagreements()
    counts.count("hermes+qwen3")
    counts.count("hermes+qwen3")
    assert counts.by_parser == {"hermes+qwen3": 2}
