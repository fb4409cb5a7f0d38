"""Streamed replies of ids as chunks of chat and completions, of which only the client keeps the state."""

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from tokenwire.coordinator.api.fields.usage import full_usage_object
from tokenwire.coordinator.api.openai.derender_logprobs import chat_scores, completion_scores, most_shown
from tokenwire.coordinator.api.openai.derender_request import (
    CONTEXT_TOKENS,
    DerenderChatRequest,
    DerenderCompletionRequest,
    DerenderState,
    GivenChunk,
    GivenChunkChoice,
)
from tokenwire.coordinator.api.openai.message import delta_object
from tokenwire.coordinator.parsing.agreement import joined
from tokenwire.coordinator.parsing.message import MessageDelta, ParserFailed, ParserPlan, RawMessage, ToolCallDelta
from tokenwire.coordinator.text.detokenizer import TextRules, TextStreams
from tokenwire.coordinator.text.text_window import WindowDecoder
from tokenwire.coordinator.types import ServedModel, Usage
from tokenwire.errors import InvalidRequest


class ChatDerenderer:
    """Derenders one chunk of a chat."""

    def __init__(
        self, body: DerenderChatRequest, model: ServedModel, rules: TextRules, plan: ParserPlan | None
    ) -> None:
        self._body = body
        self._model = model
        self._rules = rules
        self._plan = plan
        request = body.chat_request
        hidden = plan is not None and plan.rules.hides_tokens
        self._shows_ids = request is not None and bool(request.return_token_ids) and not hidden
        self._shows_scores = not hidden

    def derender(self, chunk: GivenChunk) -> dict[str, Any]:
        """Return the chunk and the state after it. Raises InvalidRequest."""
        body, state = self._body, self._body.stream_state
        if state is None:
            state = (
                DerenderState() if self._plan else _first_state(self._model, self._rules, body.prompt_token_ids, chunk)
            )
        choices = []
        for choice in chunk.choices:
            shown, state = self._choice(choice, state)
            choices.append(shown)
        return {
            "chunk": {
                **_head(chunk, "chat.completion.chunk", body.model or self._model.name),
                "choices": choices,
                "usage": _usage(chunk, body.prompt_tokens),
                "system_fingerprint": None,
                "prompt_token_ids": None,
                "prompt_text": None,
                "metrics": chunk.metrics,
            },
            "stream_state": state.model_dump(),
        }

    def _choice(self, choice: GivenChunkChoice, state: DerenderState) -> tuple[dict[str, Any], DerenderState]:
        scores = choice.scores if self._shows_scores else None
        most, before = most_shown(self._body.chat_request), state.logprob_context_token_ids
        logprobs = chat_scores(scores, self._model.token_texts, before, most)
        opening, reason = not state.role_sent, choice.finish_reason
        if self._plan is None:
            text, state = _decoded(choice, state, self._model, self._rules)
            delta = {"content": text or None}
        else:
            message, reason = _parsed(self._plan, choice, self._body, self._model, self._rules)
            delta = {"content": None, **delta_object(_beyond(message, state))}
            state = _after(message, state, choice.token_ids or [])
        shown = {
            "index": choice.index,
            "delta": {"role": "assistant" if opening else None, "reasoning": None, **delta},
            "logprobs": logprobs,
            "finish_reason": reason,
            "stop_reason": choice.stop_reason,
            "token_ids": choice.token_ids if self._shows_ids else None,
        }
        return shown, state.model_copy(update={"role_sent": True})


class CompletionDerenderer:
    """Derenders one chunk of a completion."""

    def __init__(self, body: DerenderCompletionRequest, model: ServedModel, rules: TextRules) -> None:
        self._body = body
        self._model = model
        self._rules = rules

    def derender(self, chunk: GivenChunk) -> dict[str, Any]:
        """Return the chunk and the state after it. Raises InvalidRequest."""
        body, model, state = self._body, self._model, self._body.stream_state
        if state is None:
            state = _first_state(model, self._rules, body.of_stream("prompt_token_ids"), chunk)
        choices = []
        for choice in chunk.choices:
            before, offset = state.logprob_context_token_ids, state.logprob_text_offset
            text, state = _decoded(choice, state, model, self._rules)
            state = state.model_copy(update={"logprob_text_offset": offset + len(text)})
            choices.append(
                {
                    "index": choice.index,
                    "text": text,
                    "logprobs": completion_scores(choice.scores, model.token_texts, before, offset),
                    "finish_reason": choice.finish_reason,
                    "stop_reason": choice.stop_reason,
                    "prompt_token_ids": None,
                    "token_ids": None,
                }
            )
        return {
            "chunk": {
                **_head(chunk, "text_completion", body.model or model.name),
                "choices": choices,
                "usage": _usage(chunk, body.of_stream("prompt_tokens")),
                "system_fingerprint": None,
                "metrics": chunk.metrics,
            },
            "stream_state": state.model_dump(),
        }


def _head(chunk: GivenChunk, kind: str, model: str) -> dict[str, Any]:
    return {"id": chunk.request_id, "object": kind, "created": int(time.time()), "model": model}


def _usage(chunk: GivenChunk, prompt_tokens: int | None) -> dict[str, Any] | None:
    usage = chunk.usage
    if usage is None:
        return None
    prompt = usage.prompt_tokens if prompt_tokens is None else prompt_tokens
    return full_usage_object(Usage(prompt, usage.completion_tokens or 0))


def _first_state(
    model: ServedModel, rules: TextRules, prompt: Sequence[int] | None, chunk: GivenChunk
) -> DerenderState:
    window = WindowDecoder(model.tokenizer, rules.skip_special_tokens).after(
        chunk.prompt_token_ids if prompt is None else prompt
    )
    return DerenderState(prev_tokens=list(window.tokens), prefix_offset=window.prefix, read_offset=window.read)


def _decoded(
    choice: GivenChunkChoice, state: DerenderState, model: ServedModel, rules: TextRules
) -> tuple[str, DerenderState]:
    """Return the text of a chunk, and the state after it."""
    token_ids = choice.token_ids or []
    shown = token_ids[:-1] if choice.is_terminated(model) and not rules.include_stop_str_in_output else token_ids
    text, window = WindowDecoder(model.tokenizer, rules.skip_special_tokens).decode(state.window, shown)
    context = [*state.logprob_context_token_ids, *token_ids][-CONTEXT_TOKENS:]
    return text, state.model_copy(
        update={
            "prev_tokens": list(window.tokens),
            "prefix_offset": window.prefix,
            "read_offset": window.read,
            "logprob_context_token_ids": context,
        }
    )


def _parsed(
    plan: ParserPlan, choice: GivenChunkChoice, body: DerenderChatRequest, model: ServedModel, rules: TextRules
) -> tuple[RawMessage, str | None]:
    """Return the message up to the end of a chunk, and its finish reason.

    A parser's state cannot be carried, so a new one gets all tokens again.
    """
    prompt, state = body.prompt_token_ids or [], body.stream_state or DerenderState()
    token_ids, reason = choice.token_ids or [], choice.finish_reason
    texts = TextStreams(model.tokenizer, replace(rules, stop=())).stream(prompt)
    parser, start = plan.parser(prompt), 0
    deltas: list[MessageDelta | None] = []
    try:
        for count in state.output_chunk_lens:
            part = state.output_token_ids[start : start + count]
            deltas.append(parser.delta(texts.step(part, False, False)[0], part, False))
            start += count
        if token_ids or reason is not None:
            text = texts.step(token_ids, choice.is_terminated(model), reason is not None)[0] if token_ids else ""
            deltas.append(parser.delta(text, token_ids, reason is not None))
    except ParserFailed as error:
        raise InvalidRequest(f"invalid stream_state: derender failed: {error}", param="stream_state") from error
    message = joined([delta for delta in deltas if delta is not None])
    return message, None if reason is None else parser.finish_reason(reason)


def _beyond(message: RawMessage, state: DerenderState) -> MessageDelta:
    """Return what a message has beyond what was sent.

    What a parser returns for a chunk, one before may have held back or not, as its work permits.
    """
    reasoning, content, calls = message
    known, new_calls = len(state.last_tool_call_ids), []
    for index, call in enumerate(calls):
        if index >= known:
            new_calls.append(ToolCallDelta(index, call.id, call.name, call.arguments))
        elif arguments := call.arguments[state.sent_arguments[index] :]:
            new_calls.append(ToolCallDelta(index, arguments=arguments))
    new_content, new_reasoning = (content or "")[state.sent_content :], (reasoning or "")[state.sent_reasoning :]
    return MessageDelta(new_content or None, new_reasoning or None, tuple(new_calls))


def _after(message: RawMessage, state: DerenderState, token_ids: Sequence[int]) -> DerenderState:
    """Return the state after a chunk of these tokens, up to which the message is."""
    reasoning, content, calls = message
    known, arguments = state.last_tool_call_ids, [len(call.arguments) for call in calls]
    return state.model_copy(
        update={
            "output_token_ids": [*state.output_token_ids, *token_ids],
            "output_chunk_lens": [*state.output_chunk_lens, *([len(token_ids)] if token_ids else ())],
            "logprob_context_token_ids": [*state.logprob_context_token_ids, *token_ids][-CONTEXT_TOKENS:],
            "tools_streamed": bool(calls) or state.tools_streamed,
            "last_tool_call_ids": [*known, *(call.id for call in calls[len(known) :])],
            "sent_content": max(len(content or ""), state.sent_content),
            "sent_reasoning": max(len(reasoning or ""), state.sent_reasoning),
            "sent_arguments": [max(pair) for pair in zip_longest(arguments, state.sent_arguments, fillvalue=0)],
        }
    )
