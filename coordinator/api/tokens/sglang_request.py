"""The body of SGLang's /generate, and its translation to a GenerationRequest."""

from dataclasses import replace
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field

from tokenwire.coordinator.api.api_request import RequestHeaders
from tokenwire.coordinator.api.fields.common import Identifier, Int64
from tokenwire.coordinator.api.fields.structured_outputs import StructuredOutputs, requested_grammar
from tokenwire.coordinator.api.fields.weight_limits import WeightLimitFields
from tokenwire.coordinator.api.fields.wire_values import checked_prompts
from tokenwire.coordinator.api.tokens.sampling_params import SamplingParams
from tokenwire.coordinator.generation.limits import TRANSFER_PARAMS
from tokenwire.coordinator.types import GenerationRequest, Prompt, TextPrompt, TokenPrompt
from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb

_DEFAULT_MAX_NEW_TOKENS = 128

NOT_SERVED: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("image_data", "video_data", "audio_data", "input_embeds", "session_params"), (None, [], {})),
    **dict.fromkeys(("custom_logit_processor", "lora_path", "token_ids_logprob"), (None, [])),
    **dict.fromkeys(("return_hidden_states", "return_sampling_mask"), (None, False)),
}
"""Fields of a request that are not served, with the values that have no effect."""
SAMPLING_NOT_SERVED: dict[str, tuple[Any, ...]] = {
    "stop_regex": (None, "", []),
    **dict.fromkeys(("custom_params", *TRANSFER_PARAMS), (None, {})),
}
HARMLESS = ("return_text_in_logprobs", "return_routed_experts", "log_metrics", "modalities", "routing_key", "model")
"""Fields for other parts of an SGLang deployment, or for extras that clients do not rely on."""
SAMPLING_HARMLESS = ("stream_interval",)


class SglangSamplingParams(SamplingParams):
    """SGLang's sampling parameters: vLLM's with other names."""

    max_tokens: int | None = Field(default=_DEFAULT_MAX_NEW_TOKENS, alias="max_new_tokens")
    min_tokens: int = Field(default=0, alias="min_new_tokens")
    seed: Int64 | None = Field(default=None, alias="sampling_seed")
    include_stop_str_in_output: bool = Field(default=False, alias="no_stop_trim")
    regex: str | None = None
    json_schema: str | None = None
    ebnf: str | None = None
    structural_tag: str | None = None

    def grammar(self) -> pb.StructuredOutputs | None:
        """Return the grammar of the output, if any. Raises InvalidRequest for several."""
        given = {"regex": self.regex, "json": self.json_schema, "grammar": self.ebnf}
        given |= {"structural_tag": self.structural_tag}
        if not any(given.values()):
            return None
        return requested_grammar(StructuredOutputs.model_validate(given), None)


_SamplingParams = Annotated[SglangSamplingParams, BeforeValidator(lambda given: {} if given is None else given)]


class SglangRequest(WeightLimitFields):
    """SGLang's request: one prompt or several, as text or as ids."""

    model_config = ConfigDict(extra="allow")

    text: Annotated[str | list[str] | None, BeforeValidator(checked_prompts("text"))] = None
    input_ids: Annotated[list[int] | list[list[int]] | None, BeforeValidator(checked_prompts("input_ids"))] = None
    sampling_params: _SamplingParams = Field(default_factory=lambda: SglangSamplingParams.model_validate({}))
    rid: Identifier | None = None
    return_logprob: bool | None = False
    logprob_start_len: int | None = -1
    top_logprobs_num: Annotated[int, Field(ge=0)] | None = 0
    stream: bool = False
    priority: Int64 | None = None
    cache_salt: Identifier | None = None

    @property
    def scores_prompt(self) -> bool:
        """Whether log-probabilities of the prompt are requested."""
        return bool(self.return_logprob) and self.logprob_start_len is not None and self.logprob_start_len >= 0

    @property
    def is_batch(self) -> bool:
        """Whether the response is a list."""
        several = isinstance(self.text, list) or bool(self.input_ids and isinstance(self.input_ids[0], list))
        return several or self.sampling_params.n > 1

    def prompts(self) -> list[Prompt]:
        """Return the prompts. Raises InvalidRequest unless exactly one of text and ids is given."""
        if (self.text is None) == (self.input_ids is None):
            raise InvalidRequest("Either `text` or `input_ids` must be provided.", param="input_ids")
        if self.text is not None:
            texts = [self.text] if isinstance(self.text, str) else self.text
            return [TextPrompt(text) for text in texts] or _missing("text")
        ids: Any = self.input_ids
        if ids and isinstance(ids[0], list):
            return [TokenPrompt(part, "input_ids") for part in ids]
        return [TokenPrompt(ids, "input_ids")] if ids else _missing("input_ids")

    def to_generation(
        self, response_id: str, conversation_id: str | None, headers: RequestHeaders
    ) -> GenerationRequest:
        """Translate into a GenerationRequest. Raises InvalidRequest."""
        params = self.sampling_params
        if self.return_logprob:
            top = self.top_logprobs_num or 0
            scored = {"logprobs": top, "prompt_logprobs": 0 if self.scores_prompt else None}  # without other tokens
            params = params.model_copy(update=scored)
        request = params.to_generation(response_id, self.prompts(), shows_text=True)
        return replace(
            request,
            priority=-(self.priority or 0),  # higher priorities run first in SGLang, lower ones in vLLM
            cache_salt=self.cache_salt,
            conversation_id=conversation_id,
            data_parallel_rank=headers.data_parallel_rank,
            weights=self.weight_limits(headers.weights),
            streams=bool(self.stream),
        )


def _missing(param: str) -> list[Prompt]:
    raise InvalidRequest(f"`{param}` is empty.", param=param)
