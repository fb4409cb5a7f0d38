"""Responses of SGLang's /generate. A chunk repeats all previous output, so parts are rendered once and joined."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from json.encoder import encode_basestring
from typing import Any

from tokenwire.coordinator.api.errors import error_event
from tokenwire.coordinator.api.fields.finish import DONE, resumption_fields
from tokenwire.coordinator.api.fields.logprobs import batches
from tokenwire.coordinator.api.json_pieces import JsonPieces, array_in_parts, object_pieces, slices
from tokenwire.coordinator.api.json_text import compact
from tokenwire.coordinator.api.tokens.sglang_request import SglangRequest
from tokenwire.coordinator.generation.service import PreparedRequest
from tokenwire.coordinator.output.collect import CollectedChoice
from tokenwire.coordinator.text.logprobs import ScoredPosition, ScoredToken
from tokenwire.coordinator.types import Finish, Prefill, Usage
from tokenwire.errors import TokenwireError

_MOST_AT_ONCE = 4096
"""Log-probabilities of a prompt that are rendered in one piece."""


def finish_reason(finish: Finish, token_ids: Sequence[int]) -> dict[str, Any]:
    """Return SGLang's finish reason of a choice."""
    if finish.reason == "length":
        return {"type": "length", "length": len(token_ids)}
    if finish.reason == "abort":
        return {"type": "abort", "message": "Aborted"}
    matched = finish.stop_reason
    if matched is None and token_ids:
        matched = token_ids[-1]  # end of sequence, whose id SGLang returns
    return {"type": "stop", "matched": matched}


class SglangChoice:
    """One choice and its output so far."""

    def __init__(self, body: SglangRequest, prepared: PreparedRequest, index: int, request_id: str) -> None:
        prompt = prepared.prompt_of(index)
        self._index = {"index": index} if body.is_batch else {}
        self._about = {"id": request_id, "prompt_tokens": len(prompt.token_ids)}
        self._prompt_ids = prompt.token_ids
        self._prompt_start = (body.logprob_start_len or 0) if body.scores_prompt else None
        self._top = (body.top_logprobs_num or 0) if body.return_logprob else None
        self._token_ids: list[int] = []
        self._text = self._ids = self._logprobs = self._tops = ""
        self._prefill = Prefill(0)
        self._prompt: str | None = None
        """The log-probabilities of the prompt as JSON, once they are rendered."""
        self._finish: Finish | None = None

    def prefilled(self, prefill: Prefill) -> None:
        """Record a choice's prefill."""
        self._prefill = prefill

    def add(
        self, text: str, token_ids: list[int], finish: Finish | None, logprobs: list[ScoredPosition] | None
    ) -> None:
        """Add new output of the choice."""
        self._token_ids += token_ids
        self._text += encode_basestring(text)[1:-1]
        self._ids = _join(self._ids, map(str, token_ids))
        if logprobs and self._top is not None:
            self._logprobs = _join(self._logprobs, (compact(_scored(position[0])) for position in logprobs))
            tops = ([_scored(token) for token in position[: self._top]] for position in logprobs)
            self._tops = _join(self._tops, map(compact, tops)) if self._top else ""
        self._finish = finish

    def whole(self, made: CollectedChoice) -> dict[str, Any]:
        """Return a complete choice; what is long of it is in pieces."""
        self._prefill, self._token_ids, self._finish = made.prefill, made.token_ids, made.finish
        about, top, scored = self._about_now(), self._top, made.logprobs or []
        if top is not None:
            about["input_token_logprobs"] = self._prompt_entries()
            about["output_token_logprobs"] = array_in_parts(
                [_scored(each[0]) for each in some] for some in batches(scored)
            )
            if top:
                about["output_top_logprobs"] = array_in_parts(
                    [[_scored(token) for token in each[:top]] for each in some] for some in batches(scored)
                )
        ids = array_in_parts(slices(made.token_ids))
        meta = JsonPieces(lambda: object_pieces(about))
        return {"text": made.text, "output_ids": ids, "meta_info": meta, **self._index}

    def render(self) -> bytes | Iterator[bytes]:
        """Return the choice as an event; in pieces when the log-probabilities of a long prompt are rendered."""
        before = (
            f'data: {{"text":"{self._text}","output_ids":[{self._ids}],"meta_info":{compact(self._about_now())[:-1]}'
        )
        index = "".join(f',"{name}":{value}' for name, value in self._index.items())
        if self._top is None:
            return f"{before}}}{index}}}\n\n".encode()
        before += ',"input_token_logprobs":'
        tops = f',"output_top_logprobs":[{self._tops}]' if self._top else ""
        after = f',"output_token_logprobs":[{self._logprobs}]{tops}}}{index}}}\n\n'
        if self._prompt is None:
            if self._prompt_start is not None and len(self._prompt_ids) > _MOST_AT_ONCE:
                return self._with_prompt(before, after)
            self._prompt = b"".join(self._prompt_entries()).decode()
        return f"{before}{self._prompt}{after}".encode()

    def _with_prompt(self, before: str, after: str) -> Iterator[bytes]:
        yield before.encode()
        pieces = []
        for piece in self._prompt_entries():
            pieces.append(piece)
            yield piece
        self._prompt = b"".join(pieces).decode()
        yield after.encode()

    def _about_now(self) -> dict[str, Any]:
        """Return what is not long of the choice's meta_info."""
        finish = self._finish
        spans = (finish.weight_versions if finish else None) or ()
        return {
            **self._about,
            "completion_tokens": len(self._token_ids),
            "cached_tokens": self._prefill.cached_tokens,
            "finish_reason": finish and finish_reason(finish, self._token_ids),
            "weight_version": spans[-1].version if spans else None,
            "weight_versions": [asdict(span) for span in spans] if spans else None,
            **resumption_fields(finish),
        }

    def _prompt_entries(self) -> JsonPieces:
        """Return the log-probabilities of the prompt, as far as they are requested."""
        if self._prompt_start is None:
            return array_in_parts(())
        ids = iter(self._prompt_ids[self._prompt_start :])
        positions = islice(self._prefill.logprobs or (), self._prompt_start, None)
        return array_in_parts(
            [
                [None, token_id, None] if position is None else _scored(position[0])
                for token_id, position in zip(islice(ids, len(some)), some, strict=False)
            ]
            for some in batches(positions)
        )


def _scored(token: ScoredToken) -> list[Any]:
    return [token.logprob if math.isfinite(token.logprob) else None, token.token_id, None]


def _join(before: str, parts: Any) -> str:
    added = ",".join(parts)
    return f"{before},{added}" if before and added else before or added


class SglangChunks:
    """Chunks of a stream; each has its choice's complete output so far."""

    shows_empty_deltas = True
    takes_single_steps = False
    ending = DONE

    def __init__(self, choices: Sequence[SglangChoice]) -> None:
        self._choices = choices

    def prefilled(self, index: int, prefill: Prefill) -> None:
        """Record a choice's prefill."""
        self._choices[index].prefilled(prefill)

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
    ) -> bytes | Iterator[bytes]:
        """Render a choice with its new output."""
        self._choices[index].add(text, token_ids, finish, logprobs)
        return self._choices[index].render()

    def closing(self, usage: Usage) -> bytes:
        """Return nothing: the stream ends with the last delta."""
        return b""

    def error(self, error: TokenwireError) -> bytes:
        """Render an error within the stream."""
        return error_event(error)
