"""A fake parser that records its calls."""

from collections.abc import Sequence

from tokenwire.coordinator.parsing.message import MessageDelta, ToolCallDelta
from tokenwire.coordinator.parsing.rules import ParsedToolCall

FIRST, SECOND = ToolCallDelta(0, "1", "a"), ToolCallDelta(1, "2", "b")
"""The beginnings of two calls."""


class ScriptedRawParser:
    """Returns text as content, or scripted deltas and exceptions."""

    def __init__(self, *deltas: MessageDelta | Exception | None, calls: tuple[ParsedToolCall, ...] = ()) -> None:
        self.fed: list[tuple[str, list[int], bool]] = []
        self._deltas = list(deltas)
        self._calls = calls

    def feed(self, text: str, token_ids: list[int], finished: bool) -> MessageDelta | None:
        self.fed.append((text, token_ids, finished))
        if not self._deltas:
            return MessageDelta(content=text) if text else None
        delta = self._deltas.pop(0)
        if isinstance(delta, Exception):
            raise delta
        return delta

    def parse(self, text: str, token_ids: Sequence[int]) -> tuple[str | None, str | None, tuple[ParsedToolCall, ...]]:
        if not token_ids:
            raise KeyError("nothing")
        return "because", text or None, self._calls

    def count_reasoning(self, token_ids: Sequence[int]) -> int:
        if not token_ids:
            raise KeyError("nothing")
        return len(token_ids) // 2

    @property
    def texts(self) -> list[str]:
        """The text of each call."""
        return [text for text, _, _ in self.fed]
