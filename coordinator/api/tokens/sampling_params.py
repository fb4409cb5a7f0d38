"""vLLM's SamplingParams as JSON, to which every token-in contract is translated."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from tokenwire.coordinator.api.api_request import UnsupportedFields
from tokenwire.coordinator.api.fields.common import SamplingFields, ids
from tokenwire.coordinator.api.fields.wire_values import checked_number, set_engine_fields
from tokenwire.coordinator.generation.limits import TRANSFER_PARAMS
from tokenwire.coordinator.types import GenerationRequest, Prompt
from tokenwire.errors import InvalidRequest
from tokenwire.protocol.engine_defaults import ENGINE_DEFAULTS
from tokenwire.v1 import inference_pb2 as pb

_NOT_SERVED: dict[str, tuple[Any, ...]] = {
    "prompt_logprob_token_ids": (None,),
    **dict.fromkeys(TRANSFER_PARAMS, (None, {})),  # top-level fields, not sampling parameters
}
_LARGE = ("allowed_token_ids", "trace_decode_token_ids", "logit_bias", "extra_args")
"""Sampling parameters that may take megabytes."""
_ENGINES_OWN = (
    *("output_kind", "output_text_buffer_length", "detokenize", "flat_logprobs", "skip_clone"),
    "reasoning_effort",
)
"""Sampling parameters without effect on ids: how an engine reports, how text was made."""


class SamplingParams(SamplingFields):
    """vLLM's SamplingParams as JSON. Absent fields have vLLM's defaults, not those of the model's generation config."""

    max_tokens: int | None = None
    stop: str | list[str] | None = None
    bad_words: Annotated[list[str], BeforeValidator(lambda words: words or []), Field(default_factory=list)]
    logprobs: Annotated[int | None, BeforeValidator(checked_number("logprobs"))] = None
    skip_reading_prefix_cache: bool | None = None
    prompt_logprob_start: Annotated[int, Field(ge=0, lt=2**32)] | None = None
    trace_decode_token_ids: list[int] | None = None
    extra_args: dict[str, Any] | None = None

    def to_wire(self) -> pb.SamplingParams:
        """Return the protocol's sampling parameters, which have from then on what is large. Raises InvalidRequest."""
        for name in ("logprobs", "prompt_logprobs"):
            count = getattr(self, name)
            if count is not None and count < -1:
                raise InvalidRequest(f"{name} must be non-negative or -1, got {count}.", param=name)
        wire = self.sampling(self.max_tokens, self.logprobs)
        for name, value in ENGINE_DEFAULTS.items():
            if not wire.HasField(name):
                setattr(wire, name, value)
        if self.skip_reading_prefix_cache is not None:
            wire.skip_reading_prefix_cache = self.skip_reading_prefix_cache
        if self.prompt_logprob_start is not None:
            wire.prompt_logprob_start = self.prompt_logprob_start
        ids(self.trace_decode_token_ids, "trace_decode_token_ids")
        wire.trace_decode_token_ids.extend(self.trace_decode_token_ids or ())
        set_engine_fields(wire, None, None, self.extra_args)
        for name in _LARGE:
            if getattr(self, name):
                setattr(self, name, None)  # a body is kept until its reply has been sent
        return wire

    def to_generation(
        self, response_id: str, prompts: Sequence[Prompt], *, model: str | None = None, shows_text: bool = False
    ) -> GenerationRequest:
        """Return a request with this sampling. Routes add priority, conversation and the like.

        shows_text: whether the response has text. Raises InvalidRequest.
        """
        return GenerationRequest(
            request_id=response_id,
            model=model or "",
            prompts=prompts,
            sampling=self.to_wire(),
            n=self.n,
            text=replace(self.text_rules(), detokenize=shows_text),
            max_tokens_param=None,
            returns_ids=True,
        )


def unsupported_sampling_params() -> UnsupportedFields:
    """Return the check of sampling parameters without a field."""
    return UnsupportedFields(_NOT_SERVED, _ENGINES_OWN)
