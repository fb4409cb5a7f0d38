"""A request's options of rendering, combined with the server's as in vLLM."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from tokenwire.errors import InvalidRequest

# Values that have their own arguments, or that would bypass the template.
_RESERVED = frozenset({"conversation", "messages", "tokenize"})

# Arguments of transformers' apply_chat_template, which it does not pass to templates.
_NOT_FOR_TEMPLATES = frozenset(
    {
        *("max_length", "padding", "return_assistant_tokens_mask", "return_dict", "return_tensors"),
        *("tokenizer_kwargs", "truncation"),
    }
)


@dataclass(frozen=True, slots=True)
class TemplateOptions:
    """A request's fields that reach its template."""

    add_generation_prompt: bool = True
    continue_final_message: bool = False
    tools: Sequence[Mapping[str, Any]] | None = None
    """As parsed by tokenwire.coordinator.api.fields.tools."""
    documents: Sequence[Mapping[str, Any]] | None = None
    reasoning_effort: str | None = None
    chat_template: str | None = None
    """The request's own template, or the name of one of the model's."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """The request's chat_template_kwargs."""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "TemplateOptions":
        """Return options by name; undeclared names are template kwargs."""
        names = {option.name for option in fields(cls)}
        kwargs = {name: value for name, value in options.items() if name not in names}
        return cls(**{name: value for name, value in options.items() if name in names}, kwargs=kwargs)

    def template(self) -> str | None:
        """Return the request's template, from either field."""
        return self.chat_template if self.chat_template is not None else self.kwargs.get("chat_template")

    def values(self, defaults: Mapping[str, Any]) -> dict[str, Any]:
        """Return all template values, with the server's defaults. Raises InvalidRequest."""
        reserved = sorted(_RESERVED & self.kwargs.keys())
        if reserved:
            raise InvalidRequest(
                f"chat_template_kwargs must not contain {', '.join(reserved)}.", param="chat_template_kwargs"
            )
        named: dict[str, Any] = {
            "add_generation_prompt": self.add_generation_prompt,
            "continue_final_message": self.continue_final_message,
            "documents": self.documents,
            "reasoning_effort": self.reasoning_effort,
        }
        if self.reasoning_effort is not None and "enable_thinking" not in self.kwargs:
            # A requested effort also enables thinking in templates where that is optional.
            named["enable_thinking"] = self.reasoning_effort != "none"
        # In this order a tools argument overrides the request's field, and the fields override all other arguments.
        values = {**defaults, **_given({"tools": self.tools}), **_given({**self.kwargs, **_given(named)})}
        values = {name: value for name, value in values.items() if name not in _NOT_FOR_TEMPLATES}
        return {"tools": None, "documents": None, **values}


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    # As in vLLM, null and "auto" count as absent.
    return {name: value for name, value in values.items() if value is not None and value != "auto"}
