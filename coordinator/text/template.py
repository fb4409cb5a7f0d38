"""The chat template: a conversation to the prompt's text, as transformers and vLLM render it."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from jinja2 import TemplateError

from coordinator.text.content_format import ContentFormat
from coordinator.text.jinja import CompiledTemplate, compile_template
from coordinator.text.messages import Message, developer_as_system, parse_messages
from tokenwire.errors import InvalidRequest

_CONTINUE_TAG = "CONTINUE_FINAL_MESSAGE_TAG "

# Values that have their own arguments, or that would bypass the template.
_RESERVED = frozenset({"chat_template", "conversation", "messages", "tokenize"})


class ChatTemplate:
    """A model's chat template, or several by name, of which requests with tools take "tool_use"."""

    def __init__(
        self,
        source: str | Mapping[str, str] | None,
        special_tokens: Mapping[str, str],
        content_format: Literal["auto", "string", "openai"] = "auto",
    ) -> None:
        sources = {"default": source} if isinstance(source, str) else dict(source or {})
        self._templates = {name: compile_template(text) for name, text in sources.items()}
        self._special_tokens = dict(special_tokens)
        self._content_format = content_format

    def content_format(self, tools: Sequence[Any] | None = None) -> ContentFormat:
        """Return how this template wants message content: as a string, or as a list of parts."""
        return self._select(tools).content_format if self._content_format == "auto" else self._content_format

    def render_messages(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> str:
        """Render OpenAI messages; options are those of render. Raises InvalidRequest."""
        conversation = parse_messages(messages, self.content_format(options.get("tools")))
        return self.render(conversation, **options)

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> str:
        """Render a conversation whose content has the content_format; kwargs the template does not use are dropped."""
        compiled = self._select(tools)
        _check(messages, documents, kwargs, add_generation_prompt and continue_final_message)
        conversation = list(messages) if compiled.knows_developer else developer_as_system(messages)
        final = ""
        if continue_final_message:
            final, conversation[-1] = _mark(conversation[-1], compiled)
        values = self._special_tokens | {name: kwargs[name] for name in kwargs if name in compiled.variables}
        values |= {"messages": conversation, "tools": tools, "documents": documents}
        text = _render(compiled, values | {"add_generation_prompt": add_generation_prompt})
        return _cut_at_mark(text, final) if continue_final_message else text

    def _select(self, tools: Sequence[Any] | None) -> CompiledTemplate:
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


def _check(
    messages: Sequence[Message],
    documents: Sequence[Mapping[str, Any]] | None,
    kwargs: Mapping[str, Any],
    both_endings: bool,
) -> None:
    if not messages:
        raise InvalidRequest("messages must hold at least one message.", param="messages")
    if both_endings:
        raise InvalidRequest(
            "Cannot set both `continue_final_message` and `add_generation_prompt` to True.",
            param="continue_final_message",
        )
    if not all(isinstance(document, Mapping) for document in documents or ()):
        raise InvalidRequest("documents must be a list of objects.", param="documents")
    reserved = sorted(_RESERVED & kwargs.keys())
    if reserved:
        raise InvalidRequest(
            f"chat_template_kwargs must not contain {', '.join(reserved)}.", param="chat_template_kwargs"
        )


def _render(compiled: CompiledTemplate, values: Mapping[str, Any]) -> str:
    try:
        return compiled.template.render(values)
    except Exception as error:  # a template can raise anything, and it is the request that made it do so
        raise InvalidRequest(_reason(error)) from error


def _reason(error: BaseException) -> str:
    """Return the template's own words where it has some: that tells the client what it accepts."""
    link: BaseException | None = error
    while link is not None:
        if isinstance(link, TemplateError):
            return str(link)
        link = link.__cause__ or link.__context__
    return f"The chat template cannot render these messages: {error}"


def _mark(message: Message, compiled: CompiledTemplate) -> tuple[str, Message]:
    """Put a tag behind the message's text; return the text and the tagged message."""
    content = message.get("content")
    if "content" not in compiled.source:
        raise InvalidRequest("The chat template does not use content, so no message can be continued.")
    if isinstance(content, str):
        return content, message | {"content": content + _CONTINUE_TAG}
    parts = [dict(part) for part in content or ()]
    for part in reversed(parts):
        if "text" in part:
            text = part["text"]
            part["text"] = text + _CONTINUE_TAG
            return text, message | {"content": parts}
    raise InvalidRequest("continue_final_message is set, but the final message has no text.", param="messages")


def _cut_at_mark(text: str, final: str) -> str:
    tag = _CONTINUE_TAG.strip()
    if tag not in text or final.strip() not in text:
        raise InvalidRequest(
            "continue_final_message is set, but the chat template drops or changes the final message.",
            param="continue_final_message",
        )
    end = text.rindex(tag)
    # A template that trims content has trimmed the tag's blank too, and would have trimmed the text's.
    return text[:end] if text.startswith(_CONTINUE_TAG, end) else text[:end].rstrip()
