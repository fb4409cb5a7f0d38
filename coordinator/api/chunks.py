"""Streamed chunks as bytes: everything constant is rendered once per request, only the delta once per step."""

import json
from collections.abc import Sequence
from json.encoder import encode_basestring
from typing import Any

from coordinator.api.errors import error_event
from coordinator.request import Finish, Usage
from tokenwire.errors import TokenwireError

_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

PLAIN_ENDING = ',"logprobs":null,"finish_reason":null,"token_ids":null}]}\n\n'


class ChunkWriter:
    """Renders the chunks of one request. Subclass hooks say what a route's deltas look like.

    A chunk without extras is `head + quoted text + tail`; the head and tail of every choice are bytes
    that were made before the first token.
    """

    # How a route's choice opens before the text and goes on after it.
    _before_text = ""
    _after_text = ""
    _object = ""
    # The end of a delta without extras, the same in every chunk of a route.
    _plain_tail = ""

    def __init__(
        self,
        *,
        response_id: str,
        created: int,
        model: str,
        choices: int,
        return_token_ids: bool = False,
        include_usage: bool = False,
        continuous_usage: bool = False,
        prompts: Sequence[Sequence[int]] = (),
    ) -> None:
        self.shows_empty_deltas = return_token_ids or continuous_usage
        self._envelope = {"id": response_id, "object": self._object, "created": created, "model": model}
        head = _compact(self._envelope)[:-1]
        self._heads = [
            f'data: {head},"choices":[{{"index":{index},{self._before_text}'.encode() for index in range(choices)
        ]
        self._return_token_ids = return_token_ids
        self._include_usage = include_usage
        self._usages: list[Usage] | None = None
        self._choices_per_prompt = choices // len(prompts) if prompts else choices
        self._prompts = prompts
        if continuous_usage:
            self._usages = [Usage(len(self._prompts[self._prompt_of(index)])) for index in range(choices)]

    def opening(self) -> bytes:
        """Render what comes before the first delta."""
        return b""

    def delta(self, index: int, text: str, token_ids: list[int], finish: Finish | None) -> bytes:
        """Render what a choice gained."""
        if finish is None and not self.shows_empty_deltas:
            return self._heads[index] + (encode_basestring(text) + self._plain_tail).encode()
        return self._full_delta(index, text, token_ids, finish)

    def closing(self, usage: Usage) -> bytes:
        """Render the usage chunk, when it was asked for."""
        if not self._include_usage:
            return b""
        return self._event({**self._envelope, "choices": [], "usage": usage.as_dict()})

    def error(self, error: TokenwireError) -> bytes:
        """Render an error in mid-stream."""
        return error_event(error)

    def _full_delta(self, index: int, text: str, token_ids: list[int], finish: Finish | None) -> bytes:
        after: dict[str, Any] = {"logprobs": None, "finish_reason": finish.reason if finish else None}
        if finish is not None:
            after["stop_reason"] = finish.stop_reason
        after.update(self._first_delta_extras(index))
        after["token_ids"] = token_ids if self._return_token_ids else None
        end = _compact(after)[1:] + "]"
        if self._usages is not None:
            usage = self._usages[index]
            usage.completion_tokens += len(token_ids)
            end += f',"usage":{_compact(usage.as_dict())}'
        body = f"{encode_basestring(text)}{self._after_text},{end}}}\n\n"
        return self._heads[index] + body.encode()

    def _first_delta_extras(self, index: int) -> dict[str, Any]:
        """Return fields that only a choice's first delta has."""
        return {}

    def _prompt_of(self, index: int) -> int:
        return index // self._choices_per_prompt

    @staticmethod
    def _event(body: dict[str, Any]) -> bytes:
        return f"data: {_compact(body)}\n\n".encode()


class ChatChunks(ChunkWriter):
    """Chunks of /v1/chat/completions."""

    _before_text = '"delta":{"content":'
    _after_text = "}"
    _object = "chat.completion.chunk"
    _plain_tail = "}" + PLAIN_ENDING

    def __init__(self, *, role: str, **common: Any) -> None:
        super().__init__(**common)
        self._role = role

    def opening(self) -> bytes:
        """Render one chunk per choice that names the role."""
        events = []
        for index in range(len(self._heads)):
            choice = {
                "index": index,
                "delta": {"role": self._role, "content": ""},
                "logprobs": None,
                "finish_reason": None,
            }
            body = {**self._envelope, "choices": [choice]}
            body["prompt_token_ids"] = list(self._prompts[0]) if self._return_token_ids else None
            if self._usages is not None:
                body["usage"] = self._usages[index].as_dict()
            events.append(self._event(body))
        return b"".join(events)


class CompletionChunks(ChunkWriter):
    """Chunks of /v1/completions."""

    _before_text = '"text":'
    _object = "text_completion"
    _plain_tail = PLAIN_ENDING

    def __init__(self, **common: Any) -> None:
        super().__init__(**common)
        self._shown: set[int] = set()

    def _first_delta_extras(self, index: int) -> dict[str, Any]:
        if not self._return_token_ids or index in self._shown:
            return {"prompt_token_ids": None}
        self._shown.add(index)
        return {"prompt_token_ids": list(self._prompts[self._prompt_of(index)])}
