"""The content format is detected from a template."""

import pytest
from jinja2 import Environment

from tests.coordinator.text.template import conversations
from tokenwire.coordinator.text.template.content_format import detect
from tokenwire.coordinator.text.template.jinja import compile_template


@pytest.mark.parametrize(
    ("name", "expected"),
    [(name, "openai") for name in ("parts", "parts by key", "sliced", "alias", "filtered", "content variable", "macro")]
    + [(name, "string") for name in ("plain", "loop over something else", "unclear assignment", "index")],
)
def test_content_format_is_detected_from_the_template(name: str, expected: str) -> None:
    """Templates that loop over content expect parts."""
    assert compile_template(conversations.TEMPLATES[name]).content_format == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{% for m in messages %}{% for p in m.content %}{% endfor %}{% endfor %}", "openai"),
        ("{% set all = messages %}{% for m in all[1:] %}{% for p in m['content'] %}{% endfor %}{% endfor %}", "openai"),
        ("{% for m in messages %}{{ m.content }}{% endfor %}", "string"),
        ("{% for m in messages %}{% for p in m.tool_calls %}{% endfor %}{% endfor %}", "string"),
        ("{% for m, n in messages %}{% for p in m.content %}{% endfor %}{% endfor %}", "string"),
    ],
)
def test_a_loop_over_the_content_of_messages_takes_parts(source: str, expected: str) -> None:
    """Under any name; what is unclear counts as text."""
    assert detect(Environment(autoescape=True).parse(source)) == expected
