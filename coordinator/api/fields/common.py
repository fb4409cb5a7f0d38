"""Request fields and headers shared by several routes."""

import json
import logging
import uuid
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from fastapi import Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from tokenwire.coordinator.api.fields.identifiers import Identifier, checked_identifier
from tokenwire.coordinator.api.fields.sampling import INT64_MAX, Int64, SamplingFields
from tokenwire.coordinator.api.fields.structured_outputs import ResponseFormat, structured_outputs
from tokenwire.coordinator.api.fields.wire_values import checked_cache_salt, set_engine_fields
from tokenwire.coordinator.generation.context import CONTEXT, RequestContext
from tokenwire.coordinator.output.settings import ApiSettings
from tokenwire.coordinator.parsing.request_model import RequestModel
from tokenwire.coordinator.types import Truncation
from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb

log = logging.getLogger(__name__)

# Fields of vLLM that tokenwire does not serve, with the values that have no effect.
NOT_SERVED: dict[str, tuple[Any, ...]] = {
    "use_beam_search": (None, False),
    "best_of": (None, 1),
}

# Fields without effect on the reply: accepted, as by vLLM and OpenAI.
_HARMLESS = frozenset(
    {
        *("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"),
        "prompt_cache_retention",
    }
)
_MOST_NAMED = 100
# vLLM's messages, which clients may match.
_UNSUPPORTED_MESSAGES = {
    "suffix": "suffix is only supported for models with FIM completion rendering",
    "mm_processor_kwargs": "Per-request mm_processor_kwargs are disabled: this server takes text only.",
    "media_io_kwargs": "Per-request media_io_kwargs are disabled: this server takes text only.",
}

_MAX_RANK = 2**32 - 1
"""The largest int32."""


class StreamOptions(RequestModel):
    """OpenAI's stream_options."""

    model_config = ConfigDict(extra="allow")

    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class RequestFields(SamplingFields):
    """Fields of sampling and of the response common to chat and completions."""

    model: str | None = None
    truncate_prompt_tokens: Annotated[int, Field(ge=-1, le=INT64_MAX)] | None = None
    truncation_side: Literal["left", "right"] | None = None
    response_format: ResponseFormat | None = None
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    vllm_xargs: dict[str, str | int | float | list[str | int | float]] | None = None
    echo: bool | None = False
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    stream_interval: Annotated[int, Field(ge=1)] | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    priority: Int64 = 0
    cache_salt: Annotated[str | None, BeforeValidator(checked_cache_salt)] = None
    session_id: Identifier | None = None
    request_id: Identifier = ""
    user: str | None = None
    # Of beam search, of rendering only, or of media: only their types are checked.
    use_beam_search: bool = False
    length_penalty: float = 1.0
    return_token_offsets: bool | None = None
    mm_payload: Literal["tensors", "none"] = "tensors"
    return_mm_kwargs: bool | None = None

    def shows_usage(self, api: ApiSettings) -> bool:
        """Return whether a stream ends with a usage chunk."""
        return bool(self.stream_options and self.stream_options.include_usage) or api.force_include_usage

    def shows_continuous_usage(self, api: ApiSettings) -> bool:
        """Return whether every chunk of a stream has usage; as in vLLM, only if it ends with usage."""
        return self.shows_usage(api) and bool(self.stream_options and self.stream_options.continuous_usage_stats)

    def truncation(self) -> Truncation | None:
        """Return how a long prompt is truncated; None: not at all."""
        if self.truncate_prompt_tokens is None:
            return None
        return Truncation(self.truncate_prompt_tokens, self.truncation_side)

    def check_logprobs(self) -> None:
        """Check the fields of prompt log-probabilities. Raises InvalidRequest."""
        count = self.prompt_logprobs
        if count is not None and self.stream and (count > 0 or count == -1):
            raise InvalidRequest("`prompt_logprobs` are not available when `stream=True`.", param="prompt_logprobs")
        if count is not None and count < -1:
            raise InvalidRequest("`prompt_logprobs` must be a positive value or -1.", param="prompt_logprobs")

    def grammar(self) -> pb.StructuredOutputs | None:
        """Return the requested grammar, if any; response_format takes precedence. Raises InvalidRequest."""
        if self.structured_outputs is None and self.response_format is None:
            return None
        return structured_outputs(self.structured_outputs, self.response_format)

    def sampling(
        self, max_tokens: int | None, logprobs: int | None = None, prompt_logprobs: int | None = None
    ) -> pb.SamplingParams:
        """Return the sampling parameters with the engine's own fields; see SamplingFields.sampling."""
        sampling = super().sampling(max_tokens, logprobs, prompt_logprobs)
        sampling.MergeFrom(self.engine_fields())
        return sampling

    def engine_fields(self) -> pb.SamplingParams:
        """Return sampling parameters with nothing but the fields passed through to the engine."""
        sampling = pb.SamplingParams()
        if self.kv_transfer_params or self.ec_transfer_params or self.vllm_xargs:
            set_engine_fields(sampling, self.kv_transfer_params, self.ec_transfer_params, self.vllm_xargs)
        return sampling


def check_stream_options(body: RequestFields) -> None:
    """Check that stream options are set only for streams. Raises InvalidRequest."""
    if body.stream_options is not None and body.stream_options.model_fields_set and not body.stream:
        raise InvalidRequest("Stream options can only be defined when `stream=True`.", param="stream_options")


def request_id(prefix: str, body: str | None, header: str | None) -> str:
    """Return the id of a request: from the X-Request-Id header, from the body, or a new one."""
    return f"{prefix}{header or body or uuid.uuid4().hex}"


class UnsupportedFields:
    """Rejects known fields that are not served, unless their values have no effect."""

    def __init__(self, not_served: Mapping[str, tuple[Any, ...]], harmless: Iterable[str] = ()) -> None:
        """not_served: values without effect, by field. harmless: fields that are ignored silently."""
        self._not_served = not_served
        self._harmless = _HARMLESS.union(harmless)
        self._named: set[str] = set()

    def check_body(self, body: BaseModel) -> None:
        """Check all fields of a request, declared by its model or not. Raises InvalidRequest."""
        declared = type(body).model_fields
        typed = {name: getattr(body, name) for name in self._not_served if name in declared}
        self.check(
            {**{name: typed[name] for name in typed if name in body.model_fields_set}, **(body.model_extra or {})}
        )

    def check(self, extra: Mapping[str, Any] | None) -> None:
        """Check fields that the request's model does not declare. Raises InvalidRequest."""
        for name, value in (extra or {}).items():
            if name in self._not_served:
                if value not in self._not_served[name]:
                    raise InvalidRequest(_UNSUPPORTED_MESSAGES.get(name) or f"`{name}` is not supported.", param=name)
            elif name not in self._harmless and name not in self._named and len(self._named) < _MOST_NAMED:
                self._named.add(name)
                log.warning("ignored the unknown request field %s", json.dumps(name[:100]))


class Headers:
    """The headers that belong to a request, and its tenant."""

    def __init__(self, headers: Mapping[str, str], tenant: str = "") -> None:
        self.tenant = tenant
        """The tenant of the request's key."""
        self._headers = headers
        self._priority = headers.get("x-vllm-priority")
        self._rank = headers.get("x-data-parallel-rank")
        self.request_id = self.identifier("X-Request-Id")
        self.conversation_id = self.identifier("X-Session-Id")

    @classmethod
    def of(cls, request: Request) -> "Headers":
        """Read a request's headers and its tenant. Raises InvalidRequest."""
        context: RequestContext = request.scope[CONTEXT]
        own = {name: value for name, value in context.headers.items() if name.startswith(b"x-")}
        return cls({name.decode(): value.decode("latin-1") for name, value in own.items()}, context.caller.tenant)

    def identifier(self, name: str) -> str | None:
        """Return the identifier in a header. Raises InvalidRequest."""
        value = self._headers.get(name.lower())
        return None if value is None else checked_identifier(value, name)

    def priority(self, body: int) -> int:
        """Return the header's priority, or else the body's. As in vLLM, one that is not a number is ignored."""
        return _number(self._priority, body)

    @property
    def data_parallel_rank(self) -> int | None:
        """The data-parallel rank to run on. Raises InvalidRequest if no fleet can have that rank."""
        if self._rank is None:
            return None
        try:
            rank = int(self._rank)
        except ValueError:
            rank = -1
        if not 0 <= rank <= _MAX_RANK:
            shown = f"{self._rank[:100]!r}"
            message = f"X-Data-Parallel-Rank must be a whole number from 0 to {_MAX_RANK}, got {shown}."
            raise InvalidRequest(message, param="X-Data-Parallel-Rank")
        return rank

    def conversation(self, body: RequestFields) -> str | None:
        """Return the id of the conversation: the body's, the header's, or that of vllm_xargs. Raises InvalidRequest."""
        given = body.session_id or self.conversation_id
        extra = (body.vllm_xargs or {}).get("session_id")
        if given or not isinstance(extra, str) or not extra:
            return given
        return checked_identifier(extra, "vllm_xargs.session_id")


def _number(text: str | None, otherwise: int) -> int:
    try:
        value = int(text) if text is not None else otherwise
    except ValueError:
        return otherwise
    return value if -INT64_MAX - 1 <= value <= INT64_MAX else otherwise
