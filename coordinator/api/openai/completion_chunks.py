"""Streamed chunks of completions, the first of which may have the prompt with its log-probabilities."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from json.encoder import encode_basestring
from typing import Any

from tokenwire.coordinator.api.fields.logprobs import LogprobStyle, completion_logprobs, completion_parts
from tokenwire.coordinator.api.json_text import json_bytes
from tokenwire.coordinator.api.openai.chunk_encoder import ChunkOptions, ChunkWriter
from tokenwire.coordinator.generation.service import PreparedRequest
from tokenwire.coordinator.output.sse import ChunkOutput
from tokenwire.coordinator.text.logprobs import ScoredPosition
from tokenwire.coordinator.types import Finish, Prefill

# As in vLLM, chunks of completions have every field.
_PLAIN_ENDING = (
    ',"logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":null}]}\n\n'
)
_MOST_AT_ONCE = 4096
"""Log-probabilities that are rendered in one piece."""


class CompletionChunks(ChunkWriter):
    """Chunks of /v1/completions."""

    _before_text = '"text":'
    _object = "text_completion"
    _always_stop_reason = True
    _plain_tail = _PLAIN_ENDING

    def __init__(self, prepared: PreparedRequest, created: int, options: ChunkOptions) -> None:
        super().__init__(prepared, created, options)
        self._offsets = [0] * prepared.choices
        self._prefills: dict[int, Prefill] = {}
        self._unopened = set(range(prepared.choices)) if options.show_prompt or options.return_token_ids else set()
        """Choices whose first delta has fields of the prompt."""
        self._plain = self._plain and not options.show_prompt

    def prefilled(self, index: int, prefill: Prefill) -> None:
        """Store the prompt's log-probabilities for an echo."""
        super().prefilled(index, prefill)
        if self._options.show_prompt:
            self._prefills[index] = prefill

    def _full_delta(
        self,
        index: int,
        text: str,
        token_ids: list[int],
        finish: Finish | None,
        logprobs: list[ScoredPosition] | None,
    ) -> ChunkOutput:
        if self._options.show_prompt and index in self._unopened:
            shown = "" if self._options.return_token_ids else self._prepared.text_of(index)
            text = shown if self._options.scores_only else shown + text
            style = self._options.logprobs
            if style is not None and len(self._prepared.prompt_of(index).token_ids) * style.width > _MOST_AT_ONCE:
                return self._long_delta(index, text, token_ids, finish, logprobs or [], style)
        return super()._full_delta(index, text, token_ids, finish, logprobs)

    def _long_delta(
        self,
        index: int,
        text: str,
        token_ids: list[int],
        finish: Finish | None,
        positions: list[ScoredPosition],
        style: LogprobStyle,
    ) -> Iterator[bytes]:
        """Render a first delta in pieces: it has the log-probabilities of its prompt."""
        yield self._heads[index] + f'{encode_basestring(text)}{self._after_text},"logprobs":'.encode()
        shown, scored = self._scored_prompt(index, token_ids, positions)
        decode = self._prepared.model.token_texts.text
        self._offsets[index] = yield from completion_parts(shown, scored, style, decode, self._offsets[index])
        yield b",%b}\n\n" % self._end(index, token_ids, finish)

    def _logprobs(self, index: int, token_ids: list[int], positions: list[ScoredPosition] | None) -> bytes:
        style = self._options.logprobs
        if style is None:
            return b"null"
        shown: Sequence[int] = token_ids
        scored: Sequence[ScoredPosition | None] = positions or []
        if self._options.show_prompt and index in self._unopened:
            shown, found = self._scored_prompt(index, token_ids, scored)
            scored = list(found)
        decode = self._prepared.model.token_texts.text
        rendered, self._offsets[index] = completion_logprobs(shown, scored, style, decode, self._offsets[index])
        return json_bytes(rendered)

    def _scored_prompt(
        self, index: int, token_ids: list[int], positions: Iterable[ScoredPosition | None]
    ) -> tuple[Sequence[int], Iterable[ScoredPosition | None]]:
        """Return the tokens of the prompt and the first ones of the choice, and the log-probabilities of both."""
        own = ([], []) if self._options.scores_only else (token_ids, positions)
        return with_prompt(self._prepared, index, self._prefills.get(index), *own)

    def _first_delta_extras(self, index: int) -> dict[str, Any]:
        if index not in self._unopened:
            return {"prompt_token_ids": None}
        self._unopened.discard(index)
        return {"prompt_token_ids": list(self._prepared.prompt_of(index).token_ids)}


def with_prompt(
    prepared: PreparedRequest,
    index: int,
    prefill: Prefill | None,
    token_ids: Sequence[int],
    positions: Iterable[ScoredPosition | None],
) -> tuple[list[int], Iterable[ScoredPosition | None]]:
    """Prepend the prompt's tokens and log-probabilities, which are decoded once they are read, to a choice's own."""
    prompt_ids = prepared.prompt_of(index).token_ids
    scored = (prefill.logprobs if prefill is not None else None) or [None] * len(prompt_ids)
    return [*prompt_ids, *token_ids], chain(scored, positions)
