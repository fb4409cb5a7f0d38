"""What is submitted to a worker: a prompt to generate from, or inputs to pool."""

import sys
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tokenwire.coordinator.fleet.sampled_tokens import SampledTokens
from tokenwire.coordinator.media.content import MediaPrompt
from tokenwire.process.value_class import value_class
from tokenwire.protocol.seeds import has_seed, sequence_seed
from tokenwire.v1 import inference_pb2 as pb


@value_class
class PooledInputs:
    """Several inputs in place of one prompt: each has a sequence of its own, which ends with its result."""

    params: pb.PoolingParams
    lengths: Sequence[int]
    """Tokens of each, one after the other among the submission's ids."""
    second_begins: Sequence[int] = ()
    """Where the second text of each begins, if they are pairs with types."""

    def span(self, start: int, count: int) -> slice:
        """Return where the ids of some of the inputs are."""
        begin = sum(self.lengths[:start])
        return slice(begin, begin + sum(self.lengths[start : start + count]))


@dataclass(slots=True)
class Submission:
    """A prompt for a worker, or inputs; `tokenwire.v1.Submit` and `Pool` describe the fields.

    Ids and parameters are shared with whoever holds them, so that a thousand prompts have one copy of the parameters.
    They are replaced, never changed.
    """

    request_id: str = ""
    prompt_token_ids: Sequence[int] = ()
    sampling_params: pb.SamplingParams = field(default_factory=pb.SamplingParams)
    """Those of the request."""
    max_tokens: int | None = None
    """In place of the parameters' own: it depends on the prompt."""
    start: int = 0
    """Position of its first sequence among those of the request, of which it may be a part."""
    priority: int = 0
    cache_salt: str | None = None
    lora: pb.LoraAdapter = field(default_factory=pb.LoraAdapter)
    session_id: str | None = None
    data_parallel_rank: int | None = None
    trace_headers: Mapping[str, str] | None = None
    reasoning_ended: bool | None = None
    reasoning_parser_kwargs_json: str | None = None
    resumed_after_ms: int | None = None
    tenant: str = ""
    media: MediaPrompt | None = None
    """The media of the prompt, whose ids are expanded here, and are not for the worker."""
    puts: int = 0
    """How often its media were put again, because the worker had dropped them."""
    pooled: PooledInputs | None = None
    """What the ids are, if they are inputs to pool."""
    sampled: Sequence[SampledTokens] = ()
    """Where the sampled tokens of all the request's sequences are recorded; empty: they are not."""
    by_rows: bool = False
    """Whether its worker sends recorded log-probabilities only as it sends a client's."""

    @property
    def has_rows(self) -> bool:
        """Whether the client asked for log-probabilities."""
        return self.sampling_params.HasField("logprobs") or bool(self.sampling_params.logprob_token_ids)

    def prompt_tokens(self, sequences: int) -> int:
        """Return how many tokens so many of its sequences begin with together, from the first one on."""
        if self.pooled is None:
            return len(self.prompt_token_ids)
        return sum(self.pooled.lengths[self.start : self.start + sequences])

    def message(self, slots: Sequence[int] = (), packs_ids: bool = False) -> pb.SessionRequest:
        """Return the message that starts it, or the part of it that has the slots, with a copy of everything.

        packs_ids: whether a prompt of text is sent as bytes.
        """
        if self.pooled is not None:
            return self._pool_message(self.pooled, slots)
        message = pb.SessionRequest(
            submit={
                "request_id": self.request_id,
                "slots": slots,
                "sampling_params": self.sampling_params,
                "priority": self.priority,
                "cache_salt": self.cache_salt,
                "lora": self.lora if self.lora.id else None,
                "session_id": self.session_id,
                "data_parallel_rank": self.data_parallel_rank,
                "trace_headers": self.trace_headers or None,
                "reasoning_ended": self.reasoning_ended,
                "reasoning_parser_kwargs_json": self.reasoning_parser_kwargs_json,
                "resumed_after_ms": self.resumed_after_ms,
                "tenant": self.tenant,
            }
        )
        self._add_prompt(message.submit, packs_ids)
        if self.max_tokens is not None:
            message.submit.sampling_params.max_tokens = self.max_tokens
        params = message.submit.sampling_params
        if self.sampled and not self.has_rows:
            if self.by_rows:
                params.logprobs = 0
            else:
                message.submit.sampled_logprobs = True
        if self.start and has_seed(params):
            params.seed = sequence_seed(params.seed, self.start)
        return message

    def _add_prompt(self, submit: pb.Submit, packs_ids: bool) -> None:
        if self.media is not None:
            submit.prompt_token_ids.extend(self.media.collapsed(self.prompt_token_ids))
            submit.media.extend(self.media.messages())
            submit.media_end = len(self.media.token_ids)
        elif packs_ids:
            submit.packed_prompt_token_ids = packed_ids(self.prompt_token_ids)
        else:
            submit.prompt_token_ids.extend(self.prompt_token_ids)

    def _pool_message(self, inputs: PooledInputs, slots: Sequence[int]) -> pb.SessionRequest:
        part = slice(self.start, self.start + len(slots))
        return pb.SessionRequest(
            pool={
                "request_id": self.request_id,
                "slots": slots,
                "lengths": inputs.lengths[part],
                "token_ids": self.prompt_token_ids[inputs.span(self.start, len(slots))],
                "params": inputs.params,
                "second_begins": inputs.second_begins[part],
                "priority": self.priority,
                "cache_salt": self.cache_salt,
                "lora": self.lora if self.lora.id else None,
                "trace_headers": self.trace_headers or None,
                "resumed_after_ms": self.resumed_after_ms,
            }
        )


def packed_ids(token_ids: Sequence[int]) -> bytes:
    """Return the ids of a prompt as bytes: see tokenwire.protocol.packed_ids."""
    ids = array("I", token_ids)
    if sys.byteorder == "big":
        ids.byteswap()
    return ids.tobytes()
