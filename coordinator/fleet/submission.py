"""What is submitted to a worker: a prompt, with what it shares with other prompts of its request."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tokenwire.protocol.seeds import has_seed, sequence_seed
from tokenwire.v1 import inference_pb2 as pb


@dataclass(slots=True)
class Submission:
    """A prompt for a worker; `tokenwire.v1.Submit` describes the fields.

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

    def message(self, slots: Sequence[int] = ()) -> pb.SessionRequest:
        """Return the message that starts it, with a copy of everything."""
        message = pb.SessionRequest(
            submit={
                "request_id": self.request_id,
                "slots": slots,
                "prompt_token_ids": self.prompt_token_ids,
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
        if self.max_tokens is not None:
            message.submit.sampling_params.max_tokens = self.max_tokens
        params = message.submit.sampling_params
        if self.start and has_seed(params):
            params.seed = sequence_seed(params.seed, self.start)
        return message
