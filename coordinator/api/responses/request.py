"""The body of a Responses request, and its translation to a chat request."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from tokenwire.coordinator.api.chat_translation import ChatTranslator
from tokenwire.coordinator.api.openai.chat_request import ChatCompletionRequest
from tokenwire.coordinator.api.responses.items import ends_with_incomplete_reply, messages_of
from tokenwire.coordinator.api.responses.tools import Tools
from tokenwire.coordinator.parsing.request_model import RequestModel
from tokenwire.errors import InvalidRequest

LOGPROBS = "message.output_text.logprobs"

# Repeated in every event that has the response; bounded as by OpenAI, or more generously.
Label = Annotated[str, Field(max_length=512)]
ResponseId = Annotated[str, Field(min_length=1, max_length=512)]
_Metadata = Annotated[dict[Annotated[str, Field(max_length=64)], Label], Field(max_length=16)]

# What replies can include. Reasoning is always included as text, so its encrypted form is accepted and ignored; so are
# the results of hosted tools, which are left out, and what input items always have.
_INCLUDABLE = frozenset(
    {
        LOGPROBS,
        "code_interpreter_call.outputs",
        "computer_call_output.output.image_url",
        "file_search_call.results",
        "message.input_image.image_url",
        "reasoning.encrypted_content",
        "web_search_call.action.sources",
        "web_search_call.results",
    }
)

# Fields of OpenAI or vLLM that are not served, with the values that have no effect.
_NOT_SERVED: dict[str, tuple[Any, ...]] = {
    "access_programs": (None,),
    "background_options": (None,),
    "context_management": (None, []),
    "conversation": (None,),
    "enable_response_messages": (None, False),
    "image": (None,),
    "max_tokens": (None,),
    "messages": (None,),
    "moderation": (None,),
    "previous_input_messages": (None, []),
    "prompt": (None,),
    "prompt_cache_options": (None,),
    "reasoning_effort": (None,),
}
# Chat's names of fields with a different name here.
_NAMES = {
    "max_completion_tokens": "max_output_tokens",
    "messages": "input",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
    "input_tokens": "input",
    "input_text": "input",
}


def check_includable(name: str) -> None:
    """Check what a reply is to include. Raises InvalidRequest."""
    if name not in _INCLUDABLE:
        raise InvalidRequest(f"`include` cannot have {name!r} here.", param="include")


class TextFormat(RequestModel):
    """The format of the reply's text."""

    model_config = ConfigDict(extra="allow")

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str | None = None
    json_schema: dict[str, Any] | None = Field(default=None, alias="schema")
    description: str | None = None
    strict: bool | None = None

    def response_format(self) -> dict[str, Any] | None:
        """Return chat's response_format. Raises InvalidRequest."""
        if self.type == "text":
            return None
        if self.type == "json_object":
            return {"type": "json_object"}
        if self.json_schema is None:
            raise InvalidRequest("`text.format` of type 'json_schema' needs a `schema`.", param="text.format")
        schema = {"name": self.name or "response", "schema": self.json_schema, "strict": self.strict}
        return {"type": "json_schema", "json_schema": {**schema, "description": self.description}}


class TextConfig(RequestModel):
    """OpenAI's text. The verbosity is accepted and ignored, as in vLLM: no chat template has it."""

    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ReasoningOptions(RequestModel):
    """OpenAI's reasoning. Summaries may be requested, but replies have the reasoning itself instead."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: str | None = None
    generate_summary: str | None = None
    context: Literal["auto"] | None = None
    mode: Literal["standard"] | None = None


class ResponsesRequest(RequestModel):
    """OpenAI's Responses request; vLLM's extensions are in `model_extra`."""

    model_config = ConfigDict(extra="allow")

    input: str | list[dict[str, Any]]
    model: str | None = None
    instructions: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = True
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: int | None = None
    text: TextConfig | None = None
    reasoning: ReasoningOptions | None = None
    include: list[str] | None = None
    metadata: _Metadata | None = None
    truncation: Literal["auto", "disabled"] | None = None
    stream: bool | None = False
    stream_options: dict[str, Any] | None = None
    store: bool | None = None
    background: bool | None = False
    previous_response_id: ResponseId | None = None
    user: Label | None = None
    safety_identifier: Label | None = None
    prompt_cache_key: Label | None = None

    @property
    def wants_logprobs(self) -> bool:
        """Whether the text has log-probabilities."""
        return LOGPROBS in (self.include or ())

    def check(self) -> None:
        """Check fields against each other. Raises InvalidRequest."""
        for name in self.include or ():
            check_includable(name)
        if self.max_output_tokens is not None and self.max_output_tokens < 1:
            raise InvalidRequest(
                f"`max_output_tokens` must be at least 1, got {self.max_output_tokens}.", param="max_output_tokens"
            )
        if self.top_logprobs and not self.wants_logprobs:
            raise InvalidRequest(f"`top_logprobs` needs {LOGPROBS!r} in `include`.", param="top_logprobs")
        if self.text and self.text.format and self.text.format.type != "text" and "structured_outputs" in self.extra:
            raise InvalidRequest("Cannot specify both structured_outputs and text.format", param="structured_outputs")

    def check_storing(self, stores: bool) -> None:
        """Check fields that need a store, by whether the server has one. Raises InvalidRequest."""
        if not stores:
            for name in ("background", "previous_response_id"):
                if getattr(self, name) not in (None, False):
                    raise InvalidRequest(
                        f"`{name}` is not supported: this server stores no responses, see --enable-responses-store.",
                        param=name,
                    )
        elif self.background and self.store is False:
            raise InvalidRequest("`background` needs `store` to be true.", param="background")

    @cached_property
    def sorted_tools(self) -> Tools:
        """The tools, served and left out. Raises InvalidRequest."""
        return Tools.of(self.tools)

    @property
    def extra(self) -> dict[str, Any]:
        """Undeclared fields, including vLLM's."""
        return self.model_extra or {}

    def to_chat(self, translator: ChatTranslator, before: Sequence[Mapping[str, Any]] = ()) -> ChatCompletionRequest:
        """Translate, after the items of earlier responses. Raises InvalidRequest or RequestValidationError."""
        self.check()
        form = self.text.format if self.text else None
        continued = ends_with_incomplete_reply(self.input)
        fields = {
            "model": self.model,
            "messages": messages_of(self.instructions, self.input, before),
            "add_generation_prompt": False if continued else None,
            "continue_final_message": continued or None,
            "tools": self.sorted_tools.chat(self.tool_choice),
            "tool_choice": self.sorted_tools.chat_choice(self.tool_choice),
            "parallel_tool_calls": self.parallel_tool_calls,
            "max_completion_tokens": self.max_output_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "logprobs": self.wants_logprobs or None,
            "top_logprobs": self.top_logprobs,
            "response_format": form.response_format() if form else None,
            "reasoning_effort": self.reasoning.effort if self.reasoning else None,
            "truncate_prompt_tokens": -1 if self.truncation == "auto" else None,
            "stream": self.stream,
            "prompt_cache_key": self.prompt_cache_key,
        }
        return translator.chat(fields, self.model_extra)


def responses_translator() -> ChatTranslator:
    """Return the translator from Responses requests to chat requests."""
    return ChatTranslator(_NOT_SERVED, _NAMES)
