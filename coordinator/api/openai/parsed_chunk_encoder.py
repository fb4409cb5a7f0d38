"""Streamed chat chunks whose content, reasoning and tool calls a parser extracts from the text."""

import asyncio
from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace

from tokenwire.coordinator.api.json_text import compact
from tokenwire.coordinator.api.openai.chunk_encoder import PLAIN_ENDING, ChatChunks, ChunkOptions
from tokenwire.coordinator.api.openai.message import delta_object, joined_message
from tokenwire.coordinator.generation.service import PreparedRequest
from tokenwire.coordinator.output.sse import ChunkOutput
from tokenwire.coordinator.parsing.message import MOST_APART, MOST_INLINE, MessageDelta, MessageParser, merge_all
from tokenwire.coordinator.text.logprobs import ScoredPosition
from tokenwire.coordinator.text.template.messages import ChatMessage
from tokenwire.coordinator.types import Finish, Usage

_UNCOUNTED_PART = 256
"""The part of a choice's tokens by which the reasoning tokens of a chunk in its middle may be behind."""


class ParsedChatChunks(ChatChunks):
    """Chunks of /v1/chat/completions with a tool or reasoning parser."""

    takes_single_steps = True
    _before_text = '"delta":'

    def __init__(
        self,
        prepared: PreparedRequest,
        created: int,
        options: ChunkOptions,
        *,
        role: str,
        echo: str,
        new_parser: Callable[[], MessageParser],
        hides_tokens: bool,
        counts_reasoning: bool,
        keep: Callable[[int, Sequence[ChatMessage]], None] | None = None,
    ) -> None:
        """new_parser: makes that of a choice, with its first step; keep: called with the message of each that ended."""
        super().__init__(prepared, created, options, role=role, echo=echo)
        self._new_parser = new_parser
        self._parsers: dict[int, MessageParser] = {}
        self._hides_tokens = hides_tokens
        self._shows_tokens = bool(options.return_token_ids or options.logprobs) and not self._hides_tokens
        # Parsers get every token, even without text.
        self.shows_empty_deltas = True
        self._plain = self._only_scored = False
        self._keep = keep
        self._deltas: list[list[MessageDelta]] = [[] for _ in range(prepared.choices)]
        self._token_ids = [array("I") for _ in range(prepared.choices)] if counts_reasoning else None
        self._counted = [0] * prepared.choices

    def _full_delta(
        self,
        index: int,
        text: str,
        token_ids: list[int],
        finish: Finish | None,
        logprobs: list[ScoredPosition] | None,
    ) -> ChunkOutput:
        parser = self._parsers.get(index)
        if parser is None:
            parser = self._parsers[index] = self._new_parser()
        asks = finish is not None or parser.waiting + len(token_ids) > MOST_INLINE
        if asks and parser.takes_long(text, token_ids, finish is not None):
            return self._late_delta(index, text, token_ids, finish, logprobs)
        message = parser.delta(text, token_ids, finish is not None)
        return self._parsed_delta(index, message, token_ids, finish, logprobs)

    async def _late_delta(
        self, index: int, text: str, token_ids: list[int], finish: Finish | None, logprobs: list[ScoredPosition] | None
    ) -> bytes:
        """Render many tokens, or the end of a long choice, which is parsed again as a whole, in a thread."""
        message = await asyncio.to_thread(self._parsers[index].delta, text, token_ids, finish is not None)
        return self._parsed_delta(index, message, token_ids, finish, logprobs)

    def _parsed_delta(
        self,
        index: int,
        message: MessageDelta | None,
        token_ids: list[int],
        finish: Finish | None,
        logprobs: list[ScoredPosition] | None,
    ) -> bytes:
        if self._token_ids is not None:
            self._token_ids[index].extend(token_ids)
        if self._keep is not None and message is not None:
            deltas = self._deltas[index]
            deltas.append(message)
            if len(deltas) > MOST_APART:
                deltas[:] = [merge_all(deltas)]
        if finish is not None:
            if self._keep is not None:
                self._keep(index, [joined_message(self._deltas[index])])
            reason = self._parsers[index].finish_reason(finish.reason)
            finish = replace(finish, reason=reason)
        elif message is None and not self._shows_tokens:
            self._count(index, token_ids, False)
            return b""
        delta = compact({} if message is None else delta_object(message))
        if finish is None and self._usages is None and not self._shows_tokens:
            return self._heads[index] + f"{delta}{PLAIN_ENDING}".encode()
        ending = self._ending(index, token_ids, finish, logprobs)
        return b"%b%b,%b}\n\n" % (self._heads[index], delta.encode(), ending)

    def closing(self, usage: Usage) -> bytes:
        """Render the usage chunk, if requested."""
        if self._token_ids is not None and self._options.include_usage:
            usage.reasoning_tokens = sum(map(self._reasoning_tokens, self._parsers))
        return super().closing(usage)

    def _reasoning_tokens(self, index: int) -> int:
        assert self._token_ids is not None
        return self._parsers[index].reasoning_tokens(self._token_ids[index])

    def _count(self, index: int, token_ids: list[int], last: bool) -> None:
        super()._count(index, token_ids, last)
        if self._usages is None or self._token_ids is None:
            return
        # A parser counts all ids anew: at each step of a long reply, other streams would wait for it.
        total = len(self._token_ids[index])
        if last or total - self._counted[index] > total // _UNCOUNTED_PART:
            self._usages[index].reasoning_tokens = self._reasoning_tokens(index)
            self._counted[index] = total

    def _logprobs(self, index: int, token_ids: list[int], positions: list[ScoredPosition] | None) -> bytes:
        return b"null" if self._hides_tokens else super()._logprobs(index, token_ids, positions)

    def _shown_ids(self, token_ids: list[int]) -> list[int] | None:
        return None if self._hides_tokens else super()._shown_ids(token_ids)
