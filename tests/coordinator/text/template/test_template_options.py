"""A request's options of rendering."""

from typing import Any

import pytest

from tokenwire.coordinator.text.template.template_options import TemplateOptions
from tokenwire.errors import InvalidRequest


@pytest.mark.parametrize(
    ("options", "name", "value"),
    [
        (TemplateOptions(), "thinking", "server's"),
        (TemplateOptions(kwargs={"thinking": "request's"}), "thinking", "request's"),
        (TemplateOptions(kwargs={"thinking": None}), "thinking", "server's"),
        (TemplateOptions(kwargs={"thinking": "auto"}), "thinking", "server's"),
        (TemplateOptions(documents=[{"a": 1}], kwargs={"documents": []}), "documents", [{"a": 1}]),
        (TemplateOptions(tools=[{"a": 1}], kwargs={"tools": [{"b": 2}]}), "tools", [{"b": 2}]),
        (TemplateOptions(), "documents", None),
        (TemplateOptions(reasoning_effort="low"), "enable_thinking", True),
        (TemplateOptions(reasoning_effort="none"), "enable_thinking", False),
        (TemplateOptions(reasoning_effort="low", kwargs={"enable_thinking": False}), "enable_thinking", False),
    ],
)
def test_fields_override_kwargs_and_these_the_servers_defaults(options: TemplateOptions, name: str, value: Any) -> None:
    """Except tools, which kwargs override; null and "auto" count as absent, as in vLLM."""
    assert options.values({"thinking": "server's"})[name] == value


def test_arguments_of_the_tokenizer_do_not_reach_templates() -> None:
    """transformers takes them itself."""
    assert "padding" not in TemplateOptions(kwargs={"padding": True}).values({"truncation": True})


@pytest.mark.parametrize("name", ["conversation", "messages", "tokenize"])
def test_reserved_names_are_rejected(name: str) -> None:
    """They would bypass the template."""
    with pytest.raises(InvalidRequest, match=f"must not contain {name}"):
        TemplateOptions(kwargs={name: 1}).values({})


def test_options_by_name_are_fields_or_kwargs() -> None:
    """A template is in either place."""
    options = TemplateOptions.of({"reasoning_effort": "low", "chat_template": "own", "thinking": True})

    assert (options.reasoning_effort, options.kwargs, options.template()) == ("low", {"thinking": True}, "own")
    assert TemplateOptions(kwargs={"chat_template": "other"}).template() == "other"
