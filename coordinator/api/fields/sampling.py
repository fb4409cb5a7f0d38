"""Sampling fields common to all routes, and their translation to the protocol."""

from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, Field

from tokenwire.coordinator.api.fields.structured_outputs import StructuredOutputs, structured_outputs
from tokenwire.coordinator.api.fields.wire_values import (
    checked_biases,
    checked_budget,
    checked_number,
    ids,
    int32,
    logit_bias,
)
from tokenwire.coordinator.generation.limits import MAX_STOP_STRINGS
from tokenwire.coordinator.parsing.request_model import RequestModel
from tokenwire.coordinator.text.detokenizer import TextRules
from tokenwire.errors import InvalidRequest
from tokenwire.protocol.seeds import NO_SEED
from tokenwire.v1 import inference_pb2 as pb

INT64_MAX = 2**63 - 1
Int64 = Annotated[int, Field(ge=-INT64_MAX - 1, le=INT64_MAX)]
UINT32_MAX = 2**32 - 1
UInt32 = Annotated[int, Field(ge=0, le=UINT32_MAX)]
StopStrings = str | Annotated[list[str], Field(max_length=MAX_STOP_STRINGS)] | None


class RepetitionDetection(RequestModel):
    """vLLM's repetition_detection: ends a sequence that repeats itself."""

    max_pattern_size: int = 0
    min_pattern_size: int = 0
    min_count: int = 0

    def to_wire(self) -> pb.RepetitionDetection:
        """Return the protocol's message. Raises InvalidRequest."""
        most, least, count = self.max_pattern_size, self.min_pattern_size, self.min_count
        if not 0 <= least <= most:
            raise InvalidRequest(
                "max_pattern_size, min_pattern_size must be >=0, with min_pattern_size <= max_pattern_size. "
                "Set both to 0 to disable repetitive pattern detection.",
                param="repetition_detection",
            )
        if most and count < 2:
            raise InvalidRequest(
                "min_count must be >= 2 to detect repetitive patterns in engine output. If you do not wish to detect "
                "repetitive patterns, set max_pattern_size to 0.",
                param="repetition_detection",
            )
        # No sequence is as long as the protocol's largest number.
        most, least, count = (min(max(number, 0), UINT32_MAX) for number in (most, least, count))
        return pb.RepetitionDetection(max_pattern_size=most, min_pattern_size=least, min_count=count)


class SamplingFields(RequestModel):
    """Sampling and stop conditions, with vLLM's names."""

    model_config = ConfigDict(extra="allow")

    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    n: int = 1
    seed: Int64 | None = None
    stop: StopStrings = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    min_tokens: int = 0
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    logit_bias: Annotated[dict[str, float] | None, BeforeValidator(checked_biases)] = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] = Field(default_factory=list)
    prompt_logprobs: Annotated[int | None, BeforeValidator(checked_number("prompt_logprobs"))] = None
    logprob_token_ids: list[int] | None = None
    structured_outputs: StructuredOutputs | None = None
    repetition_detection: RepetitionDetection | None = None
    thinking_token_budget: Annotated[int | None, BeforeValidator(checked_budget)] = None
    watermarking: bool | None = None
    routed_experts_prompt_start: UInt32 = 0

    def text_rules(self) -> TextRules:
        """Return the options of text, which workers do not need."""
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        return TextRules(
            stop,
            self.include_stop_str_in_output,
            self.skip_special_tokens,
            self.skip_special_tokens or self.spaces_between_special_tokens,
        )

    def grammar(self) -> pb.StructuredOutputs | None:
        """Return the grammar of the output, if any. Raises InvalidRequest."""
        return structured_outputs(self.structured_outputs, None)

    def sampling(
        self, max_tokens: int | None, logprobs: int | None = None, prompt_logprobs: int | None = None
    ) -> pb.SamplingParams:
        """Return the sampling parameters. Raises InvalidRequest for numbers out of range.

        logprobs: number of most likely tokens to report with each token; None: no report. prompt_logprobs: the same for
        prompt tokens, if the request does not set it itself.
        """
        self._check_lengths(max_tokens)
        if self.allowed_token_ids == []:
            raise InvalidRequest("allowed_token_ids is not None and empty!", param="allowed_token_ids")
        wanted = prompt_logprobs if self.prompt_logprobs is None else self.prompt_logprobs
        return pb.SamplingParams(
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            repetition_penalty=self.repetition_penalty,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=int32(self.top_k, "top_k") if self.top_k is not None else None,
            min_p=self.min_p,
            seed=None if self.seed == NO_SEED else self.seed,
            stop_token_ids=ids(self.stop_token_ids, "stop_token_ids") if self.stop_token_ids else None,
            ignore_eos=self.ignore_eos,
            max_tokens=min(max_tokens, 2**32 - 1) if max_tokens is not None else None,
            min_tokens=min(self.min_tokens, 2**32 - 1),
            logprobs=int32(logprobs, "logprobs") if logprobs is not None and not self.logprob_token_ids else None,
            prompt_logprobs=int32(wanted, "prompt_logprobs") if wanted is not None else None,
            logprob_token_ids=ids(self.logprob_token_ids, "logprob_token_ids") if self.logprob_token_ids else None,
            logit_bias=logit_bias(self.logit_bias) if self.logit_bias else None,
            allowed_token_ids=ids(self.allowed_token_ids, "allowed_token_ids") if self.allowed_token_ids else None,
            bad_words=self.bad_words,
            structured_outputs=self.grammar(),
            thinking_token_budget=self.thinking_token_budget,
            repetition_detection=self.repetition_detection.to_wire() if self.repetition_detection else None,
            watermarking=self.watermarking,
            routed_experts_prompt_start=self.routed_experts_prompt_start or None,
        )

    def _check_lengths(self, max_tokens: int | None) -> None:
        """Raise InvalidRequest for limits of a reply's length that no reply has."""
        if max_tokens is not None and max_tokens < 1:
            raise InvalidRequest(f"max_tokens must be at least 1, got {max_tokens}.", param="max_tokens")
        if self.min_tokens < 0:
            raise InvalidRequest(
                f"min_tokens must be greater than or equal to 0, got {self.min_tokens}.", param="min_tokens"
            )
