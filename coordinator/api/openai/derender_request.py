"""Bodies of the derender routes, as vLLM's: replies of /inference/v1/generate, whole or one chunk of a stream."""

import os
from collections.abc import Sequence
from itertools import chain
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, NonNegativeInt, PositiveInt

from tokenwire.coordinator.api.aside import aside
from tokenwire.coordinator.api.fields.common import Identifier
from tokenwire.coordinator.api.openai.chat_request import ChatCompletionRequest
from tokenwire.coordinator.api.openai.completions import CompletionRequest
from tokenwire.coordinator.generation.limits import MAX_SEQUENCES, check_ids
from tokenwire.coordinator.generation.request_cost import check_given
from tokenwire.coordinator.parsing.request_model import RequestModel
from tokenwire.coordinator.text.text_window import TextWindow
from tokenwire.coordinator.types import ServedModel
from tokenwire.errors import InvalidRequest

T = TypeVar("T")

TokenIds = list[NonNegativeInt]
_MOST_WINDOW_TOKENS = 1024
CONTEXT_TOKENS = 4
"""Last tokens that are kept for log-probabilities: a character has at most so many."""


class GivenScore(RequestModel):
    """The log-probability of a token at a position."""

    token_id: NonNegativeInt
    logprob: Annotated[float, Field(allow_inf_nan=False)]
    rank: int | None = None


class GivenPosition(GivenScore):
    """The sampled token at a position, and others."""

    top_logprobs: list[GivenScore] = Field(default_factory=list)


class GivenScores(RequestModel):
    """Log-probabilities of a choice."""

    content: list[GivenPosition] | None = None


class GivenChoice(RequestModel):
    """A choice of a reply of ids."""

    index: int
    finish_reason: str | None = "stop"
    stop_reason: int | str | None = None
    token_ids: TokenIds | None = None
    logprobs: GivenScores | None = None

    @property
    def scores(self) -> list[GivenPosition] | None:
        """The log-probabilities, if there are any."""
        return None if self.logprobs is None else self.logprobs.content

    def is_terminated(self, model: ServedModel) -> bool:
        """Return whether the last token ended the choice, and is not text: EOS, or a stop token."""
        if self.finish_reason != "stop" or not self.token_ids:
            return False
        last = self.token_ids[-1]
        return last == self.stop_reason or (self.stop_reason is None and model.tokenizer.is_end(last))


class GivenChunkChoice(GivenChoice):
    """What a chunk adds to a choice."""

    finish_reason: str | None = None


class GivenUsage(RequestModel):
    """The token counts of a reply of ids."""

    prompt_tokens: int = 0
    completion_tokens: int | None = 0


class _Generated(RequestModel):
    request_id: Identifier = Field(default_factory=lambda: os.urandom(16).hex())
    output_mode: Literal["tokens"] = "tokens"
    prompt_token_ids: TokenIds | None = None
    metrics: dict[str, Any] | None = None


class GivenReply(_Generated):
    """A whole reply of ids."""

    choices: list[GivenChoice]
    prompt_logprobs: list[dict[str, Any] | None] | None = None
    kv_transfer_params: dict[str, Any] | None = None

    def check(self, model: ServedModel) -> None:
        """Check lengths and ids. Raises InvalidRequest."""
        if len(self.choices) > MAX_SEQUENCES:
            raise InvalidRequest(
                f"choices count ({len(self.choices)}) in response '{self.request_id}' exceeds server maximum "
                f"({MAX_SEQUENCES}).",
                param="choices",
            )
        for choice in self.choices:
            where = f"choice {choice.index}"
            if not choice.token_ids:
                raise InvalidRequest(f"{where} has empty or null token_ids", param="token_ids")
            _check_length(f"token_ids length ({len(choice.token_ids)}) in {where}", len(choice.token_ids), model)
            check_ids(choice.token_ids, model, "token_ids")
            scores = choice.scores or ()
            _check_length(f"logprobs.content length ({len(scores)}) in {where}", len(scores), model)
            check_scores(scores, model)
        check_prompt_ids(self.prompt_token_ids, model)

    @property
    def tokens(self) -> int:
        """How many tokens it has, of all choices."""
        return sum(len(choice.token_ids or ()) for choice in self.choices)

    @property
    def logprobs(self) -> int:
        """How many log-probabilities it has."""
        positions = chain.from_iterable(choice.scores or () for choice in self.choices)
        return sum(1 + len(position.top_logprobs) for position in positions)


class GivenChunk(_Generated):
    """One chunk of a stream of ids."""

    choices: list[GivenChunkChoice]
    usage: GivenUsage | None = None


class DerenderState(RequestModel):
    """What a client carries from the chunk of a choice to the next."""

    prev_tokens: list[str] = Field(default_factory=list, max_length=_MOST_WINDOW_TOKENS)
    prefix_offset: NonNegativeInt = 0
    read_offset: NonNegativeInt = 0
    role_sent: bool = False
    logprob_context_token_ids: TokenIds = Field(default_factory=list, max_length=CONTEXT_TOKENS)
    logprob_text_offset: NonNegativeInt = 0
    output_token_ids: TokenIds = Field(default_factory=list)
    output_chunk_lens: list[PositiveInt] = Field(default_factory=list)
    tools_streamed: bool = False
    last_tool_call_ids: list[str] = Field(default_factory=list)
    sent_content: NonNegativeInt = 0
    """Characters of a parsed message that were sent. vLLM's states have none of the last three."""
    sent_reasoning: NonNegativeInt = 0
    sent_arguments: list[NonNegativeInt] = Field(default_factory=list)

    @property
    def window(self) -> TextWindow:
        """The text window. Raises InvalidRequest if no decoder has made it."""
        if not self.prefix_offset <= self.read_offset <= len(self.prev_tokens):
            raise InvalidRequest("invalid stream_state: its offsets are not within prev_tokens", param="stream_state")
        return TextWindow(self.prev_tokens, self.prefix_offset, self.read_offset)

    def check(self, model: ServedModel) -> None:
        """Check lists that belong together, and ids. Raises InvalidRequest."""
        total, count = sum(self.output_chunk_lens), len(self.output_token_ids)
        if total != count:
            raise InvalidRequest(
                f"output_chunk_lens must sum to len(output_token_ids) (got sum={total}, len(output_token_ids)={count})",
                param="stream_state",
            )
        if len(self.sent_arguments) != len(self.last_tool_call_ids):
            raise InvalidRequest(
                "invalid stream_state: sent_arguments and last_tool_call_ids differ in length", param="stream_state"
            )
        if any(token and model.tokenizer.backend.token_to_id(token) is None for token in self.prev_tokens):
            raise InvalidRequest(
                "invalid stream_state: prev_tokens are not all of the vocabulary", param="stream_state"
            )
        check_ids(self.output_token_ids, model, "stream_state")
        check_ids(self.logprob_context_token_ids, model, "stream_state")


class _Derender(RequestModel):
    stream: bool = False
    model: str | None = None
    generate_chunk: GivenChunk | None = None
    stream_state: DerenderState | None = None

    def chunk(self, model: ServedModel, prompt: Sequence[int] | None) -> GivenChunk:
        """Return the chunk of a streamed reply, after checks of it and its state. Raises InvalidRequest."""
        chunk, state = required(self.generate_chunk, "generate_chunk"), self.stream_state
        if len(chunk.choices) > 1:
            raise InvalidRequest(
                f"derender expects at most one choice per chunk (got {len(chunk.choices)}).", param="generate_chunk"
            )
        if state is not None:
            state.check(model)
        check_prompt_ids(prompt, model)
        lengths = (len(prompt or ()), len(state.output_token_ids) if state else 0)
        new = self.streamed_tokens() - lengths[1]
        _check_length(
            f"prompt_token_ids length ({lengths[0]}) plus output_token_ids length ({lengths[1]}) plus delta ({new})",
            sum(lengths) + new,
            model,
        )
        for choice in chunk.choices:
            check_ids(choice.token_ids or (), model, "token_ids")
            check_scores(choice.scores or (), model)
        return chunk

    def streamed_tokens(self) -> int:
        """Return how many tokens are decoded for a chunk."""
        before = 0 if self.stream_state is None else len(self.stream_state.output_token_ids)
        chunk = self.generate_chunk
        return before + (0 if chunk is None else sum(len(choice.token_ids or ()) for choice in chunk.choices))


class DerenderChatRequest(_Derender):
    """A reply of ids, whole or a chunk, to be returned as a chat completion."""

    generate_response: GivenReply | None = None
    prompt_tokens: int | None = None
    prompt_token_ids: TokenIds | None = None
    chat_request: ChatCompletionRequest | None = None


class DerenderCompletionRequest(_Derender):
    """Replies of ids to the prompts of a completion, or a chunk of one, to be returned as a completion."""

    generate_responses: list[GivenReply] | None = None
    prompt_tokens: int | list[int] | None = None
    prompt_token_ids: TokenIds | list[TokenIds | None] | None = None
    completion_request: CompletionRequest | None = None

    def each(self, name: Literal["prompt_tokens", "prompt_token_ids"], count: int) -> list[Any]:
        """Return a field of all replies; Nones if it is not given. Raises InvalidRequest."""
        values = getattr(self, name)
        if values is None:
            return [None] * count
        if not isinstance(values, list) or (name == "prompt_token_ids" and any(type(each) is int for each in values)):
            raise InvalidRequest(f"{name} must be a list with one entry for each response.", param=name)
        if len(values) != count:
            raise InvalidRequest(
                f"{name} length ({len(values)}) must equal generate_responses length ({count})", param=name
            )
        return values

    def of_stream(self, name: Literal["prompt_tokens", "prompt_token_ids"]) -> Any:
        """Return a field of a streamed reply, which has one prompt. Raises InvalidRequest."""
        value = getattr(self, name)
        nested = isinstance(value, list) and (name == "prompt_tokens" or any(type(each) is not int for each in value))
        if nested:
            raise InvalidRequest(f"{name} must be that of one prompt, since stream is true.", param=name)
        return value


async def check_replies(replies: Sequence[GivenReply], model: ServedModel, most_bytes: int) -> None:
    """Check what replies take, their lengths and their ids. Raises InvalidRequest."""
    choices, tokens = sum(len(reply.choices) for reply in replies), sum(reply.tokens for reply in replies)
    logprobs = sum(reply.logprobs for reply in replies)
    check_given(choices, tokens, logprobs, most_bytes)

    def check_all() -> None:
        for reply in replies:
            reply.check(model)

    await aside(choices + tokens + logprobs, check_all)


def required(value: T | None, name: str) -> T:
    """Return a field that has to be given. Raises InvalidRequest."""
    if value is None:
        raise InvalidRequest(f"{name}: Field required", param=name)
    return value


def check_prompt_ids(token_ids: Sequence[int] | None, model: ServedModel) -> None:
    """Check the ids of a prompt. Raises InvalidRequest."""
    if token_ids is not None:
        _check_length(f"prompt_token_ids length ({len(token_ids)})", len(token_ids), model)
        check_ids(token_ids, model, "prompt_token_ids")


def check_scores(scores: Sequence[GivenPosition], model: ServedModel) -> None:
    """Check the ids of log-probabilities. Raises InvalidRequest."""
    for position in scores:
        check_ids([position.token_id, *(top.token_id for top in position.top_logprobs)], model, "logprobs")


def _check_length(what: str, length: int, model: ServedModel) -> None:
    if length > model.max_model_len:
        raise InvalidRequest(f"{what} exceeds max_model_len ({model.max_model_len}).", param=what.split(" ", 1)[0])
