"""The chat template: a conversation to the prompt's text, as transformers and vLLM render it."""

from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any, Literal, Protocol

from jinja2 import TemplateError

from tokenwire.coordinator.text.template.budget import (
    INLINE,
    LimitExceeded,
    RenderLimits,
    TemplatePace,
    timed,
)
from tokenwire.coordinator.text.template.content_format import ContentFormat
from tokenwire.coordinator.text.template.continued_message import check_ending, cut_at_mark, mark
from tokenwire.coordinator.text.template.jinja import SANDBOX, CompiledTemplate, compile_template
from tokenwire.coordinator.text.template.messages import ChatMessage, developer_as_system, parse_messages
from tokenwire.coordinator.text.template.template_options import TemplateOptions
from tokenwire.errors import InvalidRequest
from tokenwire.process.threads import in_thread

_INLINE_WEIGHT = 16_384
"""Below it rendering takes about a millisecond by usual templates, and a thread would hold up the loop as long."""
_OBJECT_WEIGHT, _CHARS = 96, 8
"""Weight of an object, and characters that weigh 1: a message takes as long as some 2,000 characters."""

# Values that have their own arguments, or that would bypass the template.
_RESERVED = frozenset({"conversation", "messages", "tokenize"})

# Arguments of transformers' apply_chat_template, which it does not pass to templates.
_NOT_FOR_TEMPLATES = frozenset(
    {
        *("max_length", "padding", "return_assistant_tokens_mask", "return_dict", "return_tensors"),
        *("tokenizer_kwargs", "truncation"),
    }
)

_PLAIN = TemplateOptions()
"""The options of most requests."""

# A template's error message may contain whole conversations.
_MAX_REASON = 4096


class UntrustedRenderer(Protocol):
    """Renders templates from requests; see tokenwire.coordinator.text.template.renderer_process."""

    async def render(self, template: str, job: Mapping[str, Any]) -> str:
        """Render messages by a template, isolated from other work. Raises InvalidRequest."""


class ChatTemplate:
    """A model's chat template, or several by name; requests with tools use "tool_use"."""

    def __init__(
        self,
        source: str | Mapping[str, str] | None,
        special_tokens: Mapping[str, str],
        content_format: Literal["auto", "string", "openai"] = "auto",
        *,
        default_kwargs: Mapping[str, Any] | None = None,
        untrusted: UntrustedRenderer | None = None,
        limits: RenderLimits | None = None,
        given: bool = False,
    ) -> None:
        """untrusted: renders templates from requests, else rejected; given: by the operator, not the model's files."""
        sources = {"default": source} if isinstance(source, str) else dict(source or {})
        self.renders_pairs = given and all(role in sources.get("default", "") for role in ("query", "document"))
        self._templates = {name: compile_template(text) for name, text in sources.items()}
        self._special_tokens = dict(special_tokens)
        self._content_format = content_format
        self._default_kwargs = dict(default_kwargs or {})
        self._plain_values = self.values(_PLAIN)
        self._untrusted = untrusted
        self._limits = limits or RenderLimits()
        self._pace = TemplatePace()

    @property
    def exists(self) -> bool:
        """Whether the model has a template."""
        return bool(self._templates)

    def content_format(self, tools: Sequence[Any] | None = None) -> ContentFormat:
        """Return the form of message content that this template expects: a string, or a list of parts."""
        return self._format(self._select(tools, None))

    def identity(self, options: TemplateOptions) -> tuple[list[Any], ContentFormat]:
        """Return, as JSON, everything that a rendering depends on except the messages and their ending.

        With it the request's content_format; for its own template lists of parts, which lose nothing.
        """
        values, source = self.values(options), _requested(options)
        form: ContentFormat = "openai"
        if not self._is_foreign(source):
            compiled = self._select(values["tools"], source)
            source, form = compiled.source, self._format(compiled)
        ends = ("add_generation_prompt", "continue_final_message")
        given = {name: value for name, value in values.items() if name not in ends}
        return [source, self._special_tokens, self._content_format, given], form

    def values(self, options: TemplateOptions) -> dict[str, Any]:
        """Return all template values of a request, with the server's defaults as in vLLM. Raises InvalidRequest.

        Parsers of replies use them too.
        """
        reserved = sorted(_RESERVED & options.kwargs.keys())
        if reserved:
            raise InvalidRequest(
                f"chat_template_kwargs must not contain {', '.join(reserved)}.", param="chat_template_kwargs"
            )
        named: dict[str, Any] = {
            "add_generation_prompt": options.add_generation_prompt,
            "continue_final_message": options.continue_final_message,
            "documents": options.documents,
            "reasoning_effort": options.reasoning_effort,
        }
        if options.reasoning_effort is not None and "enable_thinking" not in options.kwargs:
            # A requested effort also enables thinking in templates where that is optional.
            named["enable_thinking"] = options.reasoning_effort != "none"
        # In this order a tools argument overrides the request's field, and the fields override all other arguments.
        values = {
            **self._default_kwargs,
            **_given({"tools": options.tools}),
            **_given({**options.kwargs, **_given(named)}),
        }
        values = {name: value for name, value in values.items() if name not in _NOT_FOR_TEMPLATES}
        return {"tools": None, "documents": None, **values}

    async def render_messages_async(
        self, messages: Sequence[Mapping[str, Any]], options: TemplateOptions | None = None
    ) -> str:
        """Render OpenAI messages without blocking the event loop for long. Raises InvalidRequest."""
        template, values = None, self._plain_values
        if options is not None and options != _PLAIN:
            template = _requested(options)
            if template is not None and self._is_foreign(template):
                return await self._render_untrusted(template, messages, options)
            values = self.values(options)
        if _is_light(messages if values is self._plain_values else [messages, values]):
            return await self._render_light(messages, values, template)
        return await in_thread(self.render_values, messages, values, template)

    async def _render_light(
        self, messages: Sequence[Mapping[str, Any]], values: Mapping[str, Any], template: str | None
    ) -> str:
        """Render few messages: on the event loop, unless the template is slow even with such."""
        now, again = monotonic(), False
        if now >= self._pace.quick_from:
            try:
                return self.render_values(messages, values, template, INLINE)
            except InvalidRequest as error:
                if not isinstance(error.__cause__, LimitExceeded):
                    raise
                again = self._pace.on_slow(now, error.__cause__)
        text, took_s = await in_thread(timed, lambda: self.render_values(messages, values, template))
        self._pace.on_rendered(took_s, again)
        return text

    def render_messages(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> str:
        """Render OpenAI messages synchronously; options are those of TemplateOptions, and template kwargs."""
        given = TemplateOptions.of(options)
        return self.render_values(messages, self.values(given), _requested(given))

    def render_values(
        self,
        messages: Sequence[Mapping[str, Any]],
        values: Mapping[str, Any],
        name: str | None = None,
        limits: RenderLimits | None = None,
    ) -> str:
        """Render OpenAI messages with the values of options, within its limits or others. Raises InvalidRequest."""
        compiled = self._select(values["tools"], name)
        parsed = parse_messages(messages, self._format(compiled))
        conversation = parsed if compiled.handles_developer else developer_as_system(parsed)
        return self._render(compiled, conversation, values, limits or self._limits)

    def render(self, messages: Sequence[ChatMessage], **options: Any) -> str:
        """Render a conversation whose content already has the content_format; options as for render_messages."""
        given = TemplateOptions.of(options)
        values = self.values(given)
        compiled = self._select(values["tools"], _requested(given))
        conversation = list(messages) if compiled.handles_developer else developer_as_system(messages)
        return self._render(compiled, conversation, values, self._limits)

    def _render(
        self,
        compiled: CompiledTemplate,
        conversation: list[ChatMessage],
        values: Mapping[str, Any],
        limits: RenderLimits,
    ) -> str:
        unfinished = values["continue_final_message"]
        _check(conversation, values)
        final = ""
        if unfinished:
            final, conversation[-1] = mark(conversation[-1], compiled.source)
        variables = self._special_tokens | {name: values[name] for name in values if name in compiled.variables}
        variables["add_generation_prompt"] = values["add_generation_prompt"]
        variables["documents"], variables["tools"] = values["documents"], values["tools"]
        variables["messages"] = conversation
        try:
            text = SANDBOX.render(compiled.template, variables, limits)
        except Exception as error:  # a template can raise anything, and the request is the cause
            raise InvalidRequest(_reason(error)) from error
        return cut_at_mark(text, final) if unfinished else text

    async def _render_untrusted(
        self, template: str, messages: Sequence[Mapping[str, Any]], options: TemplateOptions
    ) -> str:
        if self._untrusted is None:
            raise _rejected()
        job = {
            "messages": messages,
            "values": self.values(options),
            "special_tokens": self._special_tokens,
            "content_format": self._content_format,
        }
        return await self._untrusted.render(template, job)

    def _is_foreign(self, template: str | None) -> bool:
        return template is not None and template not in self._templates

    def _format(self, compiled: CompiledTemplate) -> ContentFormat:
        return compiled.content_format if self._content_format == "auto" else self._content_format

    def _select(self, tools: object, name: str | None) -> CompiledTemplate:
        if name is not None:
            if name not in self._templates:
                raise _rejected()
            return self._templates[name]
        if not self._templates:
            raise InvalidRequest(
                "This model has no chat template: give the server one with --chat-template, or use /v1/completions."
            )
        if tools is not None and "tool_use" in self._templates:
            return self._templates["tool_use"]
        if "default" not in self._templates:
            names = ", ".join(sorted(self._templates))
            raise InvalidRequest(
                f"This model has several chat templates ({names}) and none is called default: "
                "give the server one with --chat-template."
            )
        return self._templates["default"]


def _requested(options: TemplateOptions) -> str | None:
    """Return the request's template, from either field."""
    return options.chat_template if options.chat_template is not None else options.kwargs.get("chat_template")


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    # As in vLLM, null and "auto" count as absent.
    return {name: value for name, value in values.items() if value is not None and value != "auto"}


def _check(messages: Sequence[ChatMessage], values: Mapping[str, Any]) -> None:
    if not messages:
        raise InvalidRequest("messages must hold at least one message.", param="messages")
    if values["continue_final_message"]:
        check_ending(values)
    for name in ("documents", "tools"):
        items = values[name]
        if items is not None and not (
            isinstance(items, list | tuple) and all(isinstance(item, Mapping) for item in items)
        ):
            raise InvalidRequest(f"{name} must be a list of objects.", param=name)


def _rejected() -> InvalidRequest:
    return InvalidRequest(
        "Chat template is passed with request, but --trust-request-chat-template is not set. "
        "Refused request with untrusted chat template.",
        param="chat_template",
    )


def _reason(error: BaseException) -> str:
    """Return the template's own error message, if any: it explains what the template accepts."""
    link: BaseException | None = error
    while link is not None and not isinstance(link, TemplateError):
        link = link.__cause__ or link.__context__
    return (str(link) if link is not None else f"The chat template cannot render these messages: {error}")[:_MAX_REASON]


def _is_light(value: Any) -> bool:
    """Return whether a value is small enough to render on the event loop."""
    remaining, queue = _INLINE_WEIGHT, [value]
    for item in queue:  # grows while it runs
        kind = type(item)  # of what was JSON
        if kind is str:
            remaining -= len(item) // _CHARS
        elif kind is dict or kind is list or kind is tuple:
            remaining -= _OBJECT_WEIGHT * len(item)
            if remaining >= 0:
                queue += item.values() if kind is dict else item
        if remaining < 0:
            return False
    return True
