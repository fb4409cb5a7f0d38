"""A request's options of rendering."""

from collections.abc import Mapping, Sequence
from dataclasses import field, fields
from typing import Any

from tokenwire.process.value_class import value_class


@value_class
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
