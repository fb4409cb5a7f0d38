"""A request's options of rendering."""

from tokenwire.coordinator.text.template.template_options import TemplateOptions


def test_options_by_name_are_fields_or_kwargs() -> None:
    """Names that are no fields are for the template itself."""
    options = TemplateOptions.of({"reasoning_effort": "low", "chat_template": "own", "thinking": True})

    assert (options.reasoning_effort, options.chat_template, options.kwargs) == ("low", "own", {"thinking": True})
