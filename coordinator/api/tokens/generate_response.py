"""Responses of /inference/v1/generate: vLLM's format, with both the older and the newer names of fields."""

import math
from collections.abc import Iterator, Sequence
from json.encoder import encode_basestring
from typing import Any

from tokenwire.coordinator.api.errors import error_event
from tokenwire.coordinator.api.fields.finish import DONE, resumption_fields, weight_version_spans
from tokenwire.coordinator.api.fields.logprobs import LOGPROB_FLOOR, batches
from tokenwire.coordinator.api.fields.usage import usage_object
from tokenwire.coordinator.api.json_pieces import JsonPieces, array_in_parts, object_pieces
from tokenwire.coordinator.api.json_text import compact
from tokenwire.coordinator.api.tokens.generate_request import GenerateRequest
from tokenwire.coordinator.generation.service import PreparedRequest
from tokenwire.coordinator.text.logprobs import ScoredPosition, ScoredToken
from tokenwire.coordinator.types import Finish, Prefill, Usage
from tokenwire.errors import TokenwireError


def generate_logprobs_pieces(positions: Sequence[ScoredPosition], top: int, shows_text: bool) -> JsonPieces:
    """Return the logprobs of a choice of a whole reply; see `generate_logprobs`."""

    def pieces() -> Iterator[bytes]:
        parts = ([_position(position, top, shows_text) for position in some] for some in batches(positions))
        return object_pieces({"content": array_in_parts(parts)})

    return JsonPieces(pieces)


def generate_logprobs(positions: Sequence[ScoredPosition], top: int, shows_text: bool) -> dict[str, Any]:
    """Return the logprobs of a choice.

    top: number of most likely tokens with each token; -1: all; 0: the token alone. shows_text: tokens are written as
    text, otherwise as "token_id:N".
    """
    return {"content": [_position(position, top, shows_text) for position in positions]}


def _position(position: ScoredPosition, top: int, shows_text: bool) -> dict[str, Any]:
    shown = position if top == -1 else position[: max(top, 1)]
    return {**_scored(position[0], shows_text), "top_logprobs": [_scored(token, shows_text) for token in shown]}


def _scored(token: ScoredToken, shows_text: bool) -> dict[str, Any]:
    return {
        "token": token.text if shows_text else f"token_id:{token.token_id}",
        "token_id": token.token_id,
        "logprob": LOGPROB_FLOOR if math.isnan(token.logprob) else max(token.logprob, LOGPROB_FLOOR),
        "bytes": list(token.text.encode("utf-8", errors="replace")) if shows_text else None,
        "rank": token.rank or None,
    }


def ending_fields(finish: Finish | None) -> dict[str, Any]:
    """Return the fields of a choice's end; nulls before it."""
    return {
        "finish_reason": finish and finish.reason,
        "stop_reason": finish and finish.stop_reason,
        "routed_experts": None,
        "sampling_mask": None,
        "weight_versions": finish and weight_version_spans(finish),
        **resumption_fields(finish),
    }


class GenerateChunks:
    """Chunks of a stream: one choice each, its new ids between bytes rendered before the first token."""

    shows_empty_deltas = True
    takes_single_steps = False
    ending = DONE

    def __init__(self, body: GenerateRequest, prepared: PreparedRequest, usage_details: bool) -> None:
        """usage_details: whether usage includes the prompt's cached tokens."""
        self._shows_text = body.shows_text
        self._shows_usage = body.shows_usage
        self._top = body.sampling_params.logprobs
        self._usage_details = usage_details
        self._prefill: Prefill | None = None
        self._prompt = list(prepared.prompts[0].token_ids)
        self._shows_prompt = bool(body.return_token_ids)
        self._envelope = {"request_id": prepared.request.request_id, "output_mode": body.output_mode}
        head = compact(self._envelope)[:-1]
        self._heads = [
            f'data: {head},"choices":[{{"index":{index},"token_ids":['.encode() for index in range(prepared.choices)
        ]
        self._open = "," + compact(ending_fields(None))[1:] + "]"
        self._usages = [Usage(len(self._prompt)) for _ in self._heads] if body.shows_continuous_usage else None

    def prefilled(self, index: int, prefill: Prefill) -> None:
        """Record how much of the prompt was cached."""
        if self._usage_details and self._prefill is None:
            self._prefill = prefill

    def opening(self) -> Iterator[bytes]:
        """Return nothing: the stream starts with the first delta."""
        return iter(())

    def delta(
        self,
        index: int,
        text: str,
        token_ids: list[int],
        finish: Finish | None,
        logprobs: list[ScoredPosition] | None = None,
    ) -> bytes:
        """Render the new output of a choice."""
        body = ",".join(map(str, token_ids)) + "]"
        if self._shows_text:
            body += ',"text":' + encode_basestring(text)
        if self._top is None:
            body += ',"logprobs":null'
        else:
            body += ',"logprobs":' + compact(generate_logprobs(logprobs or [], self._top, self._shows_text))
        body += self._open if finish is None else "," + compact(ending_fields(finish))[1:] + "]"
        if self._shows_prompt:
            self._shows_prompt = False
            body += f',"prompt_token_ids":{compact(self._prompt)}'
        body += f',"usage":{self._counted(index, token_ids)}}}\n\n'
        return self._heads[index] + body.encode()

    def closing(self, usage: Usage) -> bytes:
        """Render the usage chunk, if requested."""
        if not self._shows_usage:
            return b""
        if self._prefill is not None:
            usage.cached_tokens = self._prefill.cached_tokens
        return f"data: {compact({**self._envelope, 'choices': [], 'usage': usage_object(usage)})}\n\n".encode()

    def error(self, error: TokenwireError) -> bytes:
        """Render an error within the stream."""
        return error_event(error)

    def _counted(self, index: int, token_ids: list[int]) -> str:
        if self._usages is None:
            return "null"
        self._usages[index].completion_tokens += len(token_ids)
        return compact(usage_object(self._usages[index]))
