"""Templates are compiled as by transformers."""

from datetime import datetime

import pytest

from tests.coordinator.text.template.bounded import render_bounded
from tests.coordinator.text.template.rendering import render_messages
from tokenwire.coordinator.text.template.chat_template import ChatTemplate
from tokenwire.errors import InvalidRequest


@pytest.mark.parametrize(
    "source",
    [
        "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}",
        "{% for i in [1] %}" * 40 + "{% endfor %}" * 40,
        "{{ " + "9" * 6000 + " }}",
    ],
)
def test_sources_that_python_cannot_compile(source: str) -> None:
    """Too deep expressions and loops, and too long numbers, are errors of the template."""
    with pytest.raises(InvalidRequest, match="cannot be compiled") as caught:
        render_bounded(source)
    assert caught.value.param == "chat_template"


def test_blocks_are_trimmed() -> None:
    """The newline after a block and the blanks before it are removed."""
    assert render_messages("{% if true %}\n  a\n    {% endif %}\nb\n") == "  a\nb"


def test_loop_controls_and_generation_blocks() -> None:
    """break, continue and generation blocks work; variables set in a generation block are local to it."""
    skip_one, stop_at_three = "{% if i == 1 %}{% continue %}{% endif %}", "{% if i == 3 %}{% break %}{% endif %}"
    assert render_messages("{% for i in range(5) %}" + skip_one + stop_at_three + "{{ i }}{% endfor %}") == "02"
    marked = "{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{{ messages[0].content }}{% endgeneration %}{{ x }}"
    assert render_messages(marked) == "2hi1"


def test_templates_have_the_date() -> None:
    """strftime_now formats the current time."""
    assert render_messages("{{ strftime_now('%Y') }}") in {str(datetime.now().year), str(datetime.now().year - 1)}


def test_a_syntax_error_is_detected_at_once() -> None:
    """A template that does not parse is rejected before any request, with the line number."""
    with pytest.raises(InvalidRequest, match=r"does not parse: .*line 2"):
        ChatTemplate("a\n{% if %}", {})
