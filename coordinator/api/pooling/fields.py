"""Request fields shared by the routes of pooling models, with vLLM's names."""

from collections.abc import Collection, Sequence
from sys import getsizeof
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from tokenwire.coordinator.api.api_request import RequestHeaders, UnsupportedFields
from tokenwire.coordinator.api.fields.common import INT64_MAX, Identifier, Int64
from tokenwire.coordinator.api.fields.media_options import MEDIA_OPTIONS_NOT_SERVED
from tokenwire.coordinator.api.fields.wire_values import checked_cache_salt
from tokenwire.coordinator.auth.caller import Caller
from tokenwire.coordinator.generation.limits import lacks_route
from tokenwire.coordinator.generation.model_directory import ModelDirectory
from tokenwire.coordinator.parsing.request_model import RequestModel
from tokenwire.coordinator.pooling.types import NumberType
from tokenwire.coordinator.text.template.template_options import TemplateOptions
from tokenwire.coordinator.types import ChatPrompt, ServedModel, Truncation
from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb

UNSUPPORTED = UnsupportedFields(MEDIA_OPTIONS_NOT_SERVED)
"""vLLM's fields that have no effect without media."""
_REMOVED_TASKS = {
    "score": "`score` task was removed; use `classify` instead.",
    "encode": "`encode` task was removed; use `token_embed` or `token_classify` instead.",
}


class PoolingFields(RequestModel):
    """Fields of all requests."""

    model_config = ConfigDict(extra="allow")

    model: str | None = None
    user: str | None = None
    truncate_prompt_tokens: Annotated[int, Field(ge=-1, le=INT64_MAX)] | None = None
    padding: Literal["max_length", "do_not_pad"] | None = None
    truncation_side: Literal["left", "right"] | None = None
    request_id: Identifier = ""
    priority: Int64 = 0
    mm_processor_kwargs: dict[str, Any] | None = None
    cache_salt: Annotated[str | None, BeforeValidator(checked_cache_salt)] = None
    use_activation: bool | None = None

    def check(self) -> None:
        """Reject fields that are not served, or that vLLM has removed. Raises InvalidRequest."""
        extra = self.model_extra or {}
        if "normalize" in extra:
            message = "Parameter `normalize` was removed; use `use_activation` instead."
            raise InvalidRequest(message, param="normalize")
        task = getattr(self, "task", None) or extra.get("task")
        if isinstance(task, str) and task in _REMOVED_TASKS:
            raise InvalidRequest(_REMOVED_TASKS[task], param="task")
        UNSUPPORTED.check_body(self)

    def truncation(self, model: ServedModel) -> Truncation | None:
        """Return how a long input is truncated; None: not at all."""
        return truncation_of(self.truncate_prompt_tokens, self.truncation_side, model)

    def pooling_params(self, task: str, dimensions: int | None = None, dtype: str = "float32") -> pb.PoolingParams:
        """Return the engine's parameters. Raises InvalidRequest for a number that it cannot have."""
        if dimensions is not None and not -INT64_MAX <= dimensions <= INT64_MAX:
            raise InvalidRequest(f"dimensions is out of range: {dimensions}", param="dimensions")
        params = pb.PoolingParams(task=task, dimensions=dimensions, dtype=dtype)
        if self.use_activation is not None:
            params.use_activation = self.use_activation
        return params

    def response_id(self, prefix: str, headers: RequestHeaders) -> str:
        """Return the id of the request and its response."""
        return headers.response_id(prefix, self.request_id)


class ChatFields(PoolingFields):
    """Fields of requests whose input may be messages, for models with a chat template."""

    add_generation_prompt: bool = False
    continue_final_message: bool = False
    add_special_tokens: bool | None = None
    """Default: true for texts, false for messages, because their template adds special tokens."""
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    media_io_kwargs: dict[str, dict[str, Any]] | None = None

    def chat_prompt(self, messages: list[dict[str, Any]]) -> ChatPrompt:
        """Return messages as an input. Raises InvalidRequest."""
        if self.continue_final_message and self.add_generation_prompt:
            raise InvalidRequest("Cannot set both `continue_final_message` and `add_generation_prompt` to True.")
        options = TemplateOptions(
            add_generation_prompt=self.add_generation_prompt,
            continue_final_message=self.continue_final_message,
            chat_template=self.chat_template,
            kwargs=self.chat_template_kwargs or {},
        )
        return ChatPrompt(messages, options)


class EncodingFields(RequestModel):
    """How the numbers of results are written."""

    encoding_format: Literal["float", "base64", "bytes", "bytes_only"] = "float"
    embed_dtype: NumberType = "float32"
    endianness: Literal["native", "big", "little"] = "native"

    def encoding(self) -> "EncodingFields":
        """Return these fields without those of the whole request."""
        return EncodingFields(
            encoding_format=self.encoding_format, embed_dtype=self.embed_dtype, endianness=self.endianness
        )


def truncation_of(length: int | None, side: Literal["left", "right"] | None, model: ServedModel) -> Truncation | None:
    """Return a truncation, by default on the side of the model's tokenizer; None without a length."""
    if length is None:
        return None
    on_left = model.pooling is not None and model.pooling.truncation_side == "left"
    return Truncation(length, side, "left" if on_left else "right")


def repeated_bytes(texts: Sequence[str]) -> int:
    """Return what texts take that a response repeats: they are kept until it is sent."""
    return sum(map(getsizeof, texts))


async def model_of_route(
    models: ModelDirectory, name: str | None, caller: Caller, tasks: Collection[str], api: str
) -> ServedModel:
    """Return the model of a request to a route for some tasks; without a name the first one that has one of these.

    Raises NotFound, Unavailable or Forbidden.
    """

    def suits(model: ServedModel) -> bool:
        return model.pooling is not None and model.pooling.task in tasks

    model = await models.resolve(name, caller, suits=suits)
    if not suits(model):
        raise lacks_route(model, api)
    return model
