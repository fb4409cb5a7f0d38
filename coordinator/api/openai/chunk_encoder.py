"""Streamed chunks as bytes: constant parts are rendered once per request, and only the delta per step."""

from collections.abc import Iterator
from json.encoder import encode_basestring
from typing import Any

from tokenwire.coordinator.api.errors import error_event
from tokenwire.coordinator.api.fields.finish import DONE, resumption_fields, weight_version_spans
from tokenwire.coordinator.api.fields.logprobs import LogprobStyle, chat_entries_json
from tokenwire.coordinator.api.fields.token_history import shown_history
from tokenwire.coordinator.api.fields.usage import usage_object
from tokenwire.coordinator.api.json_text import json_bytes
from tokenwire.coordinator.generation.service import PreparedRequest
from tokenwire.coordinator.output.sse import ChunkOutput
from tokenwire.coordinator.text.logprobs import ScoredPosition
from tokenwire.coordinator.types import Finish, Prefill, Usage
from tokenwire.errors import TokenwireError
from tokenwire.process.value_class import value_class

PLAIN_ENDING = ',"logprobs":null,"finish_reason":null,"token_ids":null}]}\n\n'


@value_class
class ChunkOptions:
    """Which fields a stream has in addition to the text."""

    return_token_ids: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    usage_details: bool = False
    """Whether usage includes the prompt's cached tokens."""
    logprobs: LogprobStyle | None = None
    show_prompt: bool = False
    """Whether the first chunk has the prompt's text; completions put it before the text."""
    scores_only: bool = False
    """Whether the reply is only the prompt, without the generated tokens."""


class ChunkWriter:
    """Renders the chunks of one request. Subclasses define a route's deltas.

    A chunk without extras is `head + quoted text + tail`; heads and tails are rendered before the first token.
    """

    ending = DONE
    takes_single_steps = False
    # A choice's JSON before and after the text.
    _before_text = ""
    _after_text = ""
    _object = ""
    _always_stop_reason = False
    # The end of a delta without extras, constant for a route.
    _plain_tail = ""

    def __init__(self, prepared: PreparedRequest, created: int, options: ChunkOptions) -> None:
        self._prepared = prepared
        self._options = options
        self.shows_empty_deltas = bool(options.return_token_ids or options.continuous_usage or options.logprobs)
        self._envelope = {
            "id": prepared.request.request_id,
            "object": self._object,
            "created": created,
            "model": prepared.model.name,
        }
        head, before_text = json_bytes(self._envelope)[:-1], self._before_text.encode()
        self._heads = [
            b'data: %b,"choices":[{"index":%d,%b' % (head, index, before_text) for index in range(prepared.choices)
        ]
        self._plain = not self.shows_empty_deltas
        self._only_scored = options.logprobs is not None and not (
            options.return_token_ids or options.continuous_usage or options.show_prompt
        )
        if self._only_scored:
            self._scored_tail = self._plain_tail.encode().partition(b"null")
        self._prefill: Prefill | None = None
        self._usages: list[Usage] | None = None
        if options.continuous_usage:
            self._usages = [Usage(len(prepared.prompt_of(index).token_ids)) for index in range(prepared.choices)]

    def prefilled(self, index: int, prefill: Prefill) -> None:
        """Record how much of the prompt was cached."""
        if self._options.usage_details and self._prefill is None:
            self._prefill = prefill

    def opening(self) -> Iterator[bytes]:
        """Render the chunks before the first delta."""
        return iter(())

    def delta(
        self,
        index: int,
        text: str,
        token_ids: list[int],
        finish: Finish | None,
        logprobs: list[ScoredPosition] | None = None,
    ) -> ChunkOutput:
        """Render the new output of a choice; with the log-probabilities of a long prompt, in pieces."""
        if finish is None and self._plain:
            return self._heads[index] + (encode_basestring(text) + self._plain_tail).encode()
        if finish is None and self._only_scored:
            before, _, after = self._scored_tail
            scored = self._logprobs(index, token_ids, logprobs)
            return b"%b%b%b%b%b" % (self._heads[index], encode_basestring(text).encode(), before, scored, after)
        return self._full_delta(index, text, token_ids, finish, logprobs)

    def closing(self, usage: Usage) -> bytes:
        """Render the usage chunk, if requested."""
        if not self._options.include_usage:
            return b""
        if self._prefill is not None:
            self._add_details(usage, self._prefill)
        return self._event({**self._envelope, "choices": [], "usage": usage_object(usage)})

    def _add_details(self, usage: Usage, prefill: Prefill) -> None:
        usage.cached_tokens = prefill.cached_tokens

    def error(self, error: TokenwireError) -> bytes:
        """Render an error within the stream."""
        return error_event(error)

    def _full_delta(
        self,
        index: int,
        text: str,
        token_ids: list[int],
        finish: Finish | None,
        logprobs: list[ScoredPosition] | None,
    ) -> ChunkOutput:
        shown = (encode_basestring(text) + self._after_text).encode()
        return b"%b%b,%b}\n\n" % (self._heads[index], shown, self._ending(index, token_ids, finish, logprobs))

    def _ending(
        self,
        index: int,
        token_ids: list[int],
        finish: Finish | None,
        logprobs: list[ScoredPosition] | None,
    ) -> bytes:
        """Render a choice from the end of its text to the end of the chunk's last field."""
        scored = self._logprobs(index, token_ids, logprobs)
        return b'"logprobs":%b,%b' % (scored, self._end(index, token_ids, finish))

    def _end(self, index: int, token_ids: list[int], finish: Finish | None) -> bytes:
        """Render what comes after the log-probabilities."""
        after: dict[str, Any] = {"finish_reason": finish.reason if finish else None}
        if finish is not None or self._always_stop_reason:
            after["stop_reason"] = finish.stop_reason if finish else None
        after.update(self._first_delta_extras(index))
        after["token_ids"] = shown = self._shown_ids(token_ids)
        if finish is not None and shown is not None:
            after["weight_versions"] = weight_version_spans(finish)
        after.update(resumption_fields(finish))
        end = json_bytes(after)[1:] + b"]"
        if self._usages is not None:
            self._count(index, token_ids, finish is not None)
            end += b',"usage":' + json_bytes(usage_object(self._usages[index]))
        return end

    def _count(self, index: int, token_ids: list[int], last: bool) -> None:
        """Count tokens for chunks with usage."""
        if self._usages is not None:
            self._usages[index].completion_tokens += len(token_ids)

    def _shown_ids(self, token_ids: list[int]) -> list[int] | None:
        return token_ids if self._options.return_token_ids else None

    def _logprobs(self, index: int, token_ids: list[int], positions: list[ScoredPosition] | None) -> bytes:
        """Render the logprobs of a delta in the route's format."""
        raise NotImplementedError

    def _first_delta_extras(self, index: int) -> dict[str, Any]:
        """Return the fields of a choice's first delta alone."""
        return {}

    @staticmethod
    def _event(body: dict[str, Any]) -> bytes:
        return b"data: %b\n\n" % json_bytes(body)


class ChatChunks(ChunkWriter):
    """Chunks of /v1/chat/completions."""

    _before_text = '"delta":{"content":'
    _after_text = "}"
    _object = "chat.completion.chunk"
    _plain_tail = "}" + PLAIN_ENDING

    def __init__(
        self, prepared: PreparedRequest, created: int, options: ChunkOptions, *, role: str, echo: str = ""
    ) -> None:
        super().__init__(prepared, created, options)
        self._role = role
        self._echo = echo

    def opening(self) -> Iterator[bytes]:
        """Render one chunk per choice with the role, then, if requested, the message that is continued."""
        for index in range(len(self._heads)):
            yield self._opening(index, {"role": self._role, "content": ""}, first=True)
        if self._echo:
            for index in range(len(self._heads)):
                yield self._opening(index, {"content": self._echo}, first=False)

    def _add_details(self, usage: Usage, prefill: Prefill) -> None:
        usage.add_cache(prefill)
        usage.multimodal_tokens = self._prepared.multimodal_tokens

    def _opening(self, index: int, delta: dict[str, Any], first: bool) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
        body: dict[str, Any] = {**self._envelope, "choices": [choice]}
        if first:
            prompt = self._prepared.prompts[0]
            body["prompt_token_ids"] = list(prompt.token_ids) if self._options.return_token_ids else None
            body["prompt_text"] = self._prepared.chat_text() if self._options.show_prompt else None
            body |= shown_history(self._prepared)
        if self._usages is not None:
            body["usage"] = usage_object(self._usages[index])
        return self._event(body)

    def _logprobs(self, index: int, token_ids: list[int], positions: list[ScoredPosition] | None) -> bytes:
        style = self._options.logprobs
        return b"null" if style is None else b'{"content":[%b]}' % chat_entries_json(positions or [], style)
