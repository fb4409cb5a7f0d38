"""Streams text up to the first call, and leaves the rest of a reply to its end: for parsers that stream calls wrongly.

Such a parser makes other calls of the parts of a reply than of the whole, even of one that is well formed, or calls
that depend on how many tokens arrive at once. Parsed as a whole, its calls are right, so they are sent then.
"""

import re
from collections.abc import Mapping, Sequence

from tokenwire.coordinator.parsing.message import MessageDelta, RawMessage, RawParser
from tokenwire.coordinator.parsing.rules import MessageRules
from tokenwire.coordinator.parsing.settings import ParserSettings

HELD_TOOLS: Mapping[str, tuple[str, ...]] = {
    "apertus": ("<|tools_prefix|>",),
    "deepseek_v3": ("<｜tool▁calls▁begin｜>",),
    "deepseek_v31": ("<｜tool▁calls▁begin｜>",),
    "functiongemma": ("<start_function_call>",),
    "gigachat3": ("<|function_call|>", "<|message_sep|>", "function call<|role_sep|>"),
    "granite-20b-fc": ("<function_call>",),
    "granite4": ("<tool_call>",),
    "hunyuan_a13b": ("<tool_calls>", "<think>"),
    "hy_v3": ("<tool_calls",),
    "hy_v4": ("<tool_calls",),
    "internlm": ("<|action_start|>",),
    "jamba": ("<tool_calls>",),
    "lfm2": ("<|tool_call_start|>",),
    "llama3_json": ("<|python_tag|>", "{"),
    "llama4_json": ("<|python_tag|>", "{"),
    "llama4_pythonic": ("<|python_start|>", "["),
    "minicpm5": ("<function", "<think>"),
    "olmo3": ("",),
    "phi4_mini_json": ("functools",),
    "pythonic": ("[",),
    "step3": ("<｜tool_calls_begin｜>",),
    "xlam": ("[", "```", "<tool_call>", "</think>"),
}
"""Parsers of calls, with the texts at which a call may begin; "": anything."""
HELD_REQUIRED: Mapping[str, tuple[str, ...]] = {
    "llama3_json": HELD_TOOLS["llama3_json"],
    "llama4_json": HELD_TOOLS["llama4_json"],
    "seed_oss": ("[",),
}
"""The same of requests that require a call: `seed_oss` reads a JSON list then."""
HELD_REASONING = frozenset({"granite", "hunyuan_a13b", "plamo3"})
"""Parsers of reasoning that recognize its ends in a stream only by the tokens of one tokenizer, or not in batches."""
HELD_ALONE = frozenset({"inkling"})
"""Parsers of reasoning that leave markup in a stream's text without the parser of calls that belongs to them."""


def held_from(settings: ParserSettings, rules: MessageRules) -> Sequence[str] | None:
    """Return the texts at which a stream is held, if the parsers in use are held."""
    alone = settings.reasoning_parser in HELD_ALONE and settings.tool_call_parser is None
    if alone or settings.reasoning_parser in HELD_REASONING:
        return ("",)
    held = {"auto": HELD_TOOLS, "required": HELD_REQUIRED}.get(rules.tool_choice, {})
    return held.get(settings.tool_call_parser or "")


class HeldCalls:
    """A RawParser whose stream ends before the first call; what follows is only in the whole message."""

    __slots__ = ("_begins", "_held", "_openings", "_text", "_texts", "_whole")

    def __init__(self, texts: RawParser, whole: RawParser, openings: Sequence[str]) -> None:
        """`texts` parses a stream without calls, and `whole` complete outputs."""
        self._texts = texts
        self._whole = whole
        self._openings = openings
        self._begins = re.compile("|".join(map(re.escape, openings)))
        self._text = ""
        """Text that may be the beginning of a call."""
        self._held = False

    def feed(self, text: str, token_ids: list[int], finished: bool) -> MessageDelta | None:
        if self._held or not self._openings[0]:
            return None
        delta = self._texts.feed(text, token_ids, finished)
        if delta is None or not delta.content:
            return delta
        content = self._before_calls(delta.content)
        return MessageDelta(content, delta.reasoning) if content or delta.reasoning else None

    def parse(self, text: str, token_ids: Sequence[int]) -> RawMessage:
        return self._whole.parse(text, token_ids)

    def count_reasoning(self, token_ids: Sequence[int]) -> int:
        return self._whole.count_reasoning(token_ids)

    def _before_calls(self, content: str) -> str | None:
        text = self._text + content
        if found := self._begins.search(text):
            self._held = True
            return text[: found.start()] or None
        kept = max(_overlap(text, opening) for opening in self._openings)
        self._text = text[len(text) - kept :]
        return text[: len(text) - kept] or None


def _overlap(text: str, opening: str) -> int:
    """Return the length of the longest end of a text with which an opening begins."""
    return next((n for n in range(min(len(text), len(opening) - 1), 0, -1) if text.endswith(opening[:n])), 0)
