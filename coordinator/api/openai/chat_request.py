"""The body of a chat completion request, and its translation to a GenerationRequest."""

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, WithJsonSchema

from tokenwire.coordinator.api.api_request import NOT_SERVED, RequestHeaders
from tokenwire.coordinator.api.fields.common import RequestFields, check_stream_options
from tokenwire.coordinator.api.fields.logprobs import LogprobStyle
from tokenwire.coordinator.api.fields.media_options import MediaOptionFields
from tokenwire.coordinator.api.fields.token_history import TokenHistoryFields, without_ids
from tokenwire.coordinator.api.fields.tools import parse_tools
from tokenwire.coordinator.api.fields.weight_limits import WeightLimitFields
from tokenwire.coordinator.api.fields.wire_values import checked_number
from tokenwire.coordinator.api.openai.chunk_encoder import ChunkOptions
from tokenwire.coordinator.output.settings import ApiSettings
from tokenwire.coordinator.parsing.message import ParserPlan
from tokenwire.coordinator.text.detokenizer import TextRules
from tokenwire.coordinator.text.template.template_options import TemplateOptions
from tokenwire.coordinator.types import ChatPrompt, GenerationRequest, Prompt, TokenPrompt
from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb

# Fields of vLLM's chat route alone that are not served, with the values that have no effect.
CHAT_NOT_SERVED: dict[str, tuple[Any, ...]] = {
    **NOT_SERVED,
    "functions": (None,),
    "function_call": (None, "none"),
    "modalities": (None, ["text"]),
    "audio": (None,),
    "prediction": (None,),
    "web_search_options": (None,),
    "verbosity": (None, "medium"),
}


_TOOL_FIELDS = frozenset({"tools", "tool_choice"})
_PART_SCHEMA = {
    "type": "object",
    "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
    "required": ["type", "text"],
}
_MESSAGES_SCHEMA = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "properties": {
            "role": {"enum": ["system", "developer", "user", "assistant", "tool"]},
            "content": {"anyOf": [{"type": "string"}, {"type": "array", "items": _PART_SCHEMA}]},
        },
        "required": ["role", "content"],
    },
}
"""The documented schema of messages. Rendering checks them, with better messages."""


class ChatCompletionRequest(RequestFields, TokenHistoryFields, MediaOptionFields):
    """OpenAI's chat completion request, with vLLM's extensions."""

    messages: Annotated[list[dict[str, Any]], WithJsonSchema(_MESSAGES_SCHEMA)]
    n: int | None = 1  # type: ignore[assignment]  # null only here, as in vLLM
    echo: bool = False
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    logprobs: bool | None = False
    top_logprobs: Annotated[int | None, BeforeValidator(checked_number("top_logprobs"))] = 0
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    include_reasoning: bool = True
    documents: list[dict[str, str]] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    return_prompt_text: bool | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = True

    def as_json(self) -> dict[str, Any]:
        """Return the body as the client sent it."""
        own = {*TokenHistoryFields.model_fields, *WeightLimitFields.model_fields}
        body = self.model_dump(exclude_unset=True, by_alias=True, exclude=own)
        body["messages"] = without_ids(body["messages"])
        return body

    def tool_fields(self) -> dict[str, Any]:
        """Return the body's tools and tool_choice as the client sent them."""
        given = _TOOL_FIELDS & self.model_fields_set
        return {name: getattr(self, name) for name in given} if given else {}

    @property
    def role(self) -> str:
        """The role of the reply."""
        return "assistant" if self.add_generation_prompt else str(self.messages[-1].get("role", "assistant"))

    @property
    def wanted_logprobs(self) -> int | None:
        """Number of most likely tokens to report with each token; None: no report."""
        return (self.top_logprobs or 0) if self.logprobs else None

    def check(self) -> None:
        """Check fields against each other. Raises InvalidRequest."""
        check_stream_options(self)
        self.check_logprobs()
        top = self.top_logprobs or 0
        if top < -1:
            raise InvalidRequest("`top_logprobs` must be a positive value or -1.", param="top_logprobs")
        if top and not self.logprobs:
            raise InvalidRequest("when using `top_logprobs`, `logprobs` must be set to true.", param="top_logprobs")
        if self.logprob_token_ids and not self.logprobs:
            raise InvalidRequest(
                "when using `logprob_token_ids`, `logprobs` must be set to true.", param="logprob_token_ids"
            )
        if not self.messages:
            raise InvalidRequest(
                "Cannot apply chat template to an empty conversation. Provide at least one message.", param="messages"
            )
        if isinstance(self.tool_choice, dict) and self.structured_outputs and self.structured_outputs.is_exclusive():
            raise InvalidRequest(
                "You can only either use constraints for structured outputs or tools, not both.",
                param="structured_outputs",
            )
        if self.continue_final_message and self.add_generation_prompt:
            raise InvalidRequest(
                "Cannot set both `continue_final_message` and `add_generation_prompt` to True.",
                param="continue_final_message",
            )

    def prompt(
        self,
        api: ApiSettings,
        headers: RequestHeaders | None = None,
        conversation_id: str | None = None,
        keeps: bool = False,
    ) -> Prompt:
        """Return the messages, or the ids of their prompt passed on from a prefill worker. Raises InvalidRequest.

        headers: those of the request; without them, no ids of earlier turns are reused. keeps: whether replies are
        stored for later turns.
        """
        prefilled = (self.kv_transfer_params or {}).pop("prompt_token_ids", None)
        if prefilled is not None and not self.echo:
            return TokenPrompt(_checked_ids(prefilled), "kv_transfer_params.prompt_token_ids")
        hidden = self.tool_choice == "none" and api.exclude_tools_when_tool_choice_none
        options = TemplateOptions(
            add_generation_prompt=self.add_generation_prompt,
            continue_final_message=self.continue_final_message,
            tools=None if hidden or self.tools is None else parse_tools(self.tools),
            documents=self.documents,
            reasoning_effort=self.reasoning_effort,
            chat_template=self.chat_template,
            kwargs=self.chat_template_kwargs or {},
        )
        if headers is None:
            return ChatPrompt(self.messages, options, self.add_special_tokens)
        history = self.exact_history(
            self.messages,
            api.token_history,
            tenant=headers.caller.tenant,
            wants_ids=bool(self.return_token_ids),
            cache_salt=self.cache_salt,
            conversation_id=conversation_id,
            keeps=keeps,
        )
        return ChatPrompt(self.messages, options, self.add_special_tokens, history)

    def to_generation(
        self, id_prefix: str, headers: RequestHeaders, plan: ParserPlan | None, api: ApiSettings
    ) -> GenerationRequest:
        """Translate into a GenerationRequest, adapted to the parsers' plan. Raises InvalidRequest.

        id_prefix: the first characters of the response's id.
        """
        completion_limit = self.max_completion_tokens is not None
        # A reply that echoes a message, or has another role, is not sent back as it was returned.
        keeps = not self.echo and self.add_generation_prompt != self.continue_final_message
        logprobs = self.wanted_logprobs
        session_id, priority = headers.session(self), headers.priority(self.priority)
        conversation_id = session_id or headers.other_conversation_id
        request = GenerationRequest(
            request_id=headers.response_id(id_prefix, self.request_id),
            model=self.model or "",
            prompts=[self.prompt(api, headers, conversation_id, keeps)],
            sampling=self.sampling(
                self.max_completion_tokens if completion_limit else self.max_tokens,
                logprobs,
                prompt_logprobs=(self.top_logprobs or 0) if self.echo else None,
            ),
            n=1 if self.n is None else self.n,
            text=self.text_rules(),
            max_tokens_param="max_completion_tokens" if completion_limit else "max_tokens",
            priority=priority,
            cache_salt=self.cache_salt,
            conversation_id=conversation_id,
            is_recorded=session_id is not None,
            data_parallel_rank=headers.data_parallel_rank,
            media_options=self.media_options(api) if self.mm_processor_kwargs or self.media_io_kwargs else None,
            weights=self.weight_limits(headers.weights),
            truncation=self.truncation(),
            stream_interval=self.stream_interval or 1,
            streams=bool(self.stream),
            returns_ids=bool(self.return_token_ids),
            repeats_prompt=bool(self.echo or self.return_token_ids or self.return_prompt_text),
            reasoning_ended=None if self.include_reasoning else True,
        )
        return request if plan is None else _planned(request, plan)

    def echoed(self) -> str:
        """Return the text of the last message, for an echo before the reply."""
        last = self.messages[-1]
        if not self.echo or last.get("role") != self.role:
            return ""
        content = last.get("content") or ""
        if isinstance(content, str):
            return content
        return "\n".join(part if isinstance(part, str) else part.get("text") or "" for part in content)

    def chunk_options(self, api: ApiSettings) -> ChunkOptions:
        """Return which fields a stream has in addition to the text."""
        return ChunkOptions(
            return_token_ids=bool(self.return_token_ids),
            logprobs=self.logprob_style(api),
            include_usage=self.shows_usage(api),
            continuous_usage=self.shows_continuous_usage(api),
            usage_details=api.prompt_tokens_details,
            show_prompt=bool(self.return_prompt_text),
        )

    def logprob_style(self, api: ApiSettings) -> LogprobStyle | None:
        """Return the style of log-probabilities; None: not requested."""
        if self.wanted_logprobs is None:
            return None
        as_ids = self.return_tokens_as_token_ids
        return LogprobStyle(
            self.wanted_logprobs,
            everything=bool(self.logprob_token_ids),
            as_token_ids=api.tokens_as_token_ids if as_ids is None else as_ids,
        )


def planned_rules(rules: TextRules, plan: ParserPlan) -> TextRules:
    """Return the rules of text that its parsers can read."""
    skip = plan.skip_special_tokens
    return replace(
        rules, skip_special_tokens=skip, spaces_between_special_tokens=skip or plan.spaces_between_special_tokens
    )


def _planned(request: GenerationRequest, plan: ParserPlan) -> GenerationRequest:
    """Return a request whose reply its parsers can read."""
    sampling = pb.SamplingParams()
    sampling.CopyFrom(request.sampling)
    sampling.ClearField("structured_outputs")
    if plan.structured_outputs is not None:
        sampling.structured_outputs.CopyFrom(plan.structured_outputs)
    return replace(
        request,
        prompts=request.prompts if plan.prompt_token_ids is None else [TokenPrompt(plan.prompt_token_ids)],
        sampling=sampling,
        text=planned_rules(request.text, plan),
        reasoning_parser_kwargs=plan.reasoning_parser_kwargs,
        token_by_token=True,
        plan=plan,
    )


def _checked_ids(value: Any) -> list[int]:
    if not isinstance(value, list) or not value or any(type(item) is not int or item < 0 for item in value):
        raise InvalidRequest(
            "`kv_transfer_params['prompt_token_ids']` must be a non-empty list of non-negative integers.",
            param="kv_transfer_params.prompt_token_ids",
        )
    return value
