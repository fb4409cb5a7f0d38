"""Parsers on vLLM's parser engine drop their deltas in parts, and return what they would have."""

from collections.abc import Sequence
from typing import Any

from tokenwire.coordinator.parsing.gradual_release import releasing_gradually


class MergingEngine:
    """Merges deltas as vLLM's parser engine does."""

    @staticmethod
    def _coalesce_tool_call_deltas(deltas: list[str]) -> list[str]:
        return deltas if len(deltas) == 1 else ["".join(deltas)]


class EngineTools:
    """An adapter of it."""

    _parser_engine_cls: type[Any] = MergingEngine


class OnEngine:
    """A parser with it."""

    tool_parser_cls: type[Any] | None = EngineTools


class OfItsOwn:
    """A parser of calls that is on no engine."""

    tool_parser_cls: type[Any] | None = str


class WithoutTools:
    """A parser of reasoning only."""

    tool_parser_cls: type[Any] | None = None


class DroppedDeltas(list[str]):
    """Notes how many are dropped at once."""

    def __init__(self, texts: Sequence[str]) -> None:
        super().__init__(texts)
        self.dropped: list[int] = []

    def __delitem__(self, place: Any) -> None:
        before = len(self)
        super().__delitem__(place)
        self.dropped.append(before - len(self))


def merged(deltas: list[str]) -> list[str]:
    """Merge by the engine of a parser class that releases gradually."""
    tools: Any = releasing_gradually(OnEngine).tool_parser_cls
    result: list[str] = tools._parser_engine_cls._coalesce_tool_call_deltas(deltas)
    return result


def test_what_was_merged_is_dropped_in_parts() -> None:
    """All of it, by the time that vLLM drops the list."""
    deltas = DroppedDeltas("a" * 10_000)

    assert merged(deltas) == ["a" * 10_000]
    assert deltas == []
    assert max(deltas.dropped) <= 4096


def test_deltas_that_are_the_result_are_kept() -> None:
    """If there is nothing to merge, vLLM returns the list itself."""
    assert merged(["a"]) == ["a"]


def test_other_parsers_are_what_they_were() -> None:
    """Without vLLM's parser engine, and without a parser of calls; a class that is changed is so for its user only."""
    assert releasing_gradually(OfItsOwn) is OfItsOwn
    assert releasing_gradually(WithoutTools) is WithoutTools
    assert issubclass(releasing_gradually(OnEngine), OnEngine)
    assert OnEngine.tool_parser_cls is EngineTools
    assert EngineTools._parser_engine_cls is MergingEngine
