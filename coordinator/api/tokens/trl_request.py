"""Bodies of the routes of TRL's own server, up to version 1.10, and their translation to GenerationRequests."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError

from tokenwire.coordinator.api.api_request import InvalidBody
from tokenwire.coordinator.api.fields.tools import parse_tools
from tokenwire.coordinator.api.fields.weight_limits import LIMIT_NAMES, WeightLimitFields
from tokenwire.coordinator.api.fields.wire_values import checked_prompts
from tokenwire.coordinator.api.tokens.sampling_params import SamplingParams
from tokenwire.coordinator.parsing.request_model import RequestModel
from tokenwire.coordinator.text.template.template_options import TemplateOptions
from tokenwire.coordinator.types import ChatPrompt, GenerationRequest, Prompt, TextPrompt, TokenPrompt
from tokenwire.errors import InvalidRequest


class TrlSampling(WeightLimitFields):
    """Sampling parameters: some by name, and any other of vLLM's in `generation_kwargs`, which take precedence."""

    n: int = 1
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    max_tokens: int = 16
    logprobs: int | None = 0
    structured_outputs_regex: str | None = None
    generation_kwargs: dict[str, Any] = Field(default_factory=dict)

    def sampling_params(self) -> SamplingParams:
        """Return vLLM's parameters. Raises InvalidBody for invalid `generation_kwargs`."""
        own = {"structured_outputs_regex", "generation_kwargs", *LIMIT_NAMES}
        names = set(TrlSampling.model_fields) - own
        given = {**self.model_dump(include=names), **self.generation_kwargs}
        if self.structured_outputs_regex is not None:
            given["structured_outputs"] = {"regex": self.structured_outputs_regex}
        try:
            return SamplingParams.model_validate(given)
        except ValidationError as error:
            problems = [{**each, "loc": ("body", "generation_kwargs", *each["loc"])} for each in error.errors()]
            raise InvalidBody(problems) from error


class TrlGenerate(TrlSampling):
    """Prompts as texts or ids."""

    prompts: Annotated[list[str] | list[list[int]], Field(min_length=1), BeforeValidator(checked_prompts("prompts"))]
    images: list[list[str] | None] | None = None

    def to_prompts(self) -> Sequence[Prompt]:
        """Return the prompts. Raises InvalidRequest for images."""
        if any(self.images or ()):
            raise InvalidRequest("`images` is not supported: this server takes text only.", param="images")
        return [TextPrompt(each) if isinstance(each, str) else TokenPrompt(each, "prompts") for each in self.prompts]


class TrlChat(TrlSampling):
    """Conversations."""

    messages: Annotated[list[list[dict[str, Any]]], Field(min_length=1), BeforeValidator(checked_prompts("messages"))]
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    tools: list[dict[str, Any]] | None = None

    def to_prompts(self) -> Sequence[Prompt]:
        """Return the prompts. Raises InvalidRequest for invalid tools."""
        options = TemplateOptions(tools=parse_tools(self.tools), kwargs=self.chat_template_kwargs)
        return [ChatPrompt(messages, options) for messages in self.messages]


class TrlSequenceLogprobs(RequestModel):
    """Sequences to score: prompts with their completions."""

    sequences: Annotated[list[list[int]], Field(min_length=1), BeforeValidator(checked_prompts("sequences"))]
    prompt_lengths: list[Annotated[int, Field(ge=0)]]
    top_logprobs: Annotated[int, Field(ge=0)] = 100
    temperature: float = 1.0
    response_format: Literal["json", "binary"] = "json"

    def to_generation(self, response_id: str) -> GenerationRequest:
        """Translate into a request that scores its prompts; the engine still generates one token.

        Raises InvalidRequest unless every sequence has a prompt length within it.
        """
        if len(self.sequences) != len(self.prompt_lengths):
            message = f"{len(self.sequences)} sequences need as many prompt_lengths, got {len(self.prompt_lengths)}."
            raise InvalidRequest(message, param="prompt_lengths")
        for number, (sequence, length) in enumerate(zip(self.sequences, self.prompt_lengths, strict=True)):
            if length > len(sequence):
                message = f"prompt_lengths[{number}] is {length}, but the sequence has {len(sequence)} tokens."
                raise InvalidRequest(message, param="prompt_lengths")
        params = SamplingParams.model_validate(
            {"max_tokens": 1, "temperature": self.temperature, "prompt_logprobs": self.top_logprobs}
        )
        return params.to_generation(response_id, [TokenPrompt(each, "sequences") for each in self.sequences])
