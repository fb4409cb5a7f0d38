"""The body of a Messages request, and its translation to a chat request."""

import re
from typing import Any, Literal

from pydantic import ConfigDict, Field

from tokenwire.coordinator.api.anthropic.blocks import chat_messages, ends_with_assistant_text
from tokenwire.coordinator.api.anthropic.context_management import ContextManagement
from tokenwire.coordinator.api.chat_translation import ChatTranslator
from tokenwire.coordinator.api.openai.chat_request import ChatCompletionRequest
from tokenwire.coordinator.parsing.request_model import RequestModel
from tokenwire.errors import InvalidRequest

# Fields of Anthropic's API that are not served, with the values that have no effect.
_NOT_SERVED: dict[str, tuple[Any, ...]] = {
    "container": (None,),
    "diagnostics": (None,),
    "reasoning_effort": (None,),
    "speed": (None, "standard"),
    "stop": (None,),
}
# Chat's names of fields with a different name here.
_NAMES = {
    "stop": "stop_sequences",
    "response_format": "output_config.format",
    "reasoning_effort": "output_config.effort",
    "thinking_token_budget": "thinking.budget_tokens",
}


_HOSTED = re.compile(r"(web_search|web_fetch|code_execution|tool_search_tool_(regex|bm25))(_\d{8})?|mcp_toolset")
_MCP_SERVERS = "mcp_servers"


class Tool(RequestModel):
    """A tool that the client runs. Tools that Anthropic runs have their own types and no schema."""

    type: str | None = None
    name: str = ""
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None
    defer_loading: bool | None = None

    @property
    def is_hosted(self) -> bool:
        """Whether only Anthropic's servers can run it. Clients offer such tools but do not depend on them."""
        return self.type is not None and _HOSTED.fullmatch(self.type) is not None

    def chat(self, where: str) -> dict[str, Any]:
        """Return it in chat's form. Raises InvalidRequest."""
        if self.type not in (None, "custom"):
            raise InvalidRequest(f"{where} is of type {self.type!r}, which is not supported.", param="tools")
        if not self.name:
            raise InvalidRequest(f"{where}.name is required.", param="tools")
        if self.input_schema is None:
            raise InvalidRequest(f"{where}.input_schema is required.", param="tools")
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": {"type": "object", **self.input_schema},
            "strict": self.strict,
            "defer_loading": self.defer_loading,
        }
        return {"type": "function", "function": {name: value for name, value in function.items() if value is not None}}


class ToolChoice(RequestModel):
    """Which tools the model may or must call."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None

    def chat(self) -> str | dict[str, Any]:
        """Return it in chat's form. Raises InvalidRequest."""
        if self.type == "tool":
            if not self.name:
                raise InvalidRequest("tool_choice.name is required when type is 'tool'.", param="tool_choice")
            return {"type": "function", "function": {"name": self.name}}
        return "required" if self.type == "any" else self.type


class Thinking(RequestModel):
    """Whether the model thinks, and how much. Its thinking is always returned."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = Field(default=None, ge=1)


class OutputFormat(RequestModel):
    """A schema for the reply."""

    type: Literal["json_schema"] = "json_schema"
    json_schema: dict[str, Any] = Field(alias="schema")


class OutputConfig(RequestModel):
    """Anthropic's output_config."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: OutputFormat | None = None

    def response_format(self) -> dict[str, Any] | None:
        """Return chat's response_format."""
        if self.format is None:
            return None
        return {"type": "json_schema", "json_schema": {"name": "json_schema", "schema": self.format.json_schema}}


class CountTokensRequest(RequestModel):
    """The fields that determine a prompt; vLLM's extensions are in `model_extra`."""

    model_config = ConfigDict(extra="allow")

    model: str
    messages: list[dict[str, Any]]
    system: str | list[dict[str, Any]] | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    context_management: ContextManagement | None = None
    mcp_servers: list[dict[str, Any]] | None = None
    """Left out as hosted tools are: only Anthropic's servers connect to them."""
    cache_control: Any = None
    """Ignored: prefixes are always cached."""

    @property
    def left_out_tools(self) -> list[str]:
        """Types of the tools that only Anthropic's servers can run."""
        types = [tool.type or "" for tool in self.tools or () if tool.is_hosted]
        return [*types, _MCP_SERVERS] if self.mcp_servers else types

    @property
    def has_inline_system(self) -> bool:
        """Whether there are system messages within the conversation."""
        return any(message.get("role") == "system" for message in self.messages)

    def to_chat(self, translator: ChatTranslator, system_first: bool = False) -> ChatCompletionRequest:
        """Translate. Raises InvalidRequest or RequestValidationError."""
        return translator.chat(self._fields(system_first), self.model_extra)

    def _fields(self, system_first: bool) -> dict[str, Any]:
        config, thinking = self.output_config or OutputConfig(), self.thinking
        edited = self.messages if self.context_management is None else self.context_management.edited(self.messages)
        messages = chat_messages(self.system, edited, system_first)
        continued = ends_with_assistant_text(messages) or None
        tools = [tool.chat(f"tools[{i}]") for i, tool in enumerate(self.tools or ()) if not tool.is_hosted] or None
        choice = self.tool_choice
        disabled = thinking is not None and thinking.type == "disabled"
        return {
            "model": self.model,
            "messages": messages,
            "continue_final_message": continued,
            "add_generation_prompt": False if continued else None,
            "tools": tools,
            "tool_choice": self._tool_choice(has_tools=tools is not None),
            "parallel_tool_calls": False if choice and choice.disable_parallel_tool_use else None,
            "response_format": config.response_format(),
            "reasoning_effort": "none" if disabled else config.effort,
            "thinking_token_budget": None if disabled or thinking is None else thinking.budget_tokens,
            "chat_template_kwargs": self._template_kwargs(),
        }

    def _tool_choice(self, has_tools: bool) -> str | dict[str, Any] | None:
        choice = self.tool_choice
        if choice is None or (choice.type == "auto" and not has_tools):
            return "auto" if has_tools else None
        if choice.type == "tool" and any(tool.is_hosted and tool.name == choice.name for tool in self.tools or ()):
            raise InvalidRequest(
                f"`tool_choice` forces {choice.name!r}, which only Anthropic's servers can run.", param="tool_choice"
            )
        if choice.type == "any" and not has_tools and self.left_out_tools:
            raise InvalidRequest(
                "`tool_choice` forces a call of tools that only Anthropic's servers can run.", param="tool_choice"
            )
        return choice.chat()

    def _template_kwargs(self) -> dict[str, Any] | None:
        # Some templates enable thinking only on request; an effort of "none" disables it.
        if self.thinking is None or self.thinking.type == "disabled":
            return self.chat_template_kwargs
        return {"enable_thinking": True, **(self.chat_template_kwargs or {})}


class MessagesRequest(CountTokensRequest):
    """Anthropic's Messages request."""

    max_tokens: int
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop_sequences: list[str] | None = None
    stream: bool | None = False
    metadata: dict[str, Any] | None = None
    service_tier: str | None = None
    inference_geo: str | None = None

    def _fields(self, system_first: bool) -> dict[str, Any]:
        thinking = self.thinking
        if thinking is not None and thinking.type == "enabled":
            if thinking.budget_tokens is None:
                raise InvalidRequest("thinking.budget_tokens is required when type is 'enabled'.", param="thinking")
            if thinking.budget_tokens >= self.max_tokens:
                raise InvalidRequest("thinking.budget_tokens must be less than max_tokens.", param="thinking")
        return {
            **super()._fields(system_first),
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "stop": self.stop_sequences,
            "stream": self.stream,
        }


def messages_translator() -> ChatTranslator:
    """Return the translator from Messages requests to chat requests."""
    return ChatTranslator(_NOT_SERVED, _NAMES)
