"""Renderings under narrow limits."""

import re
from typing import Any

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tests.coordinator.text.template.rendering import HELLO
from tokenwire.coordinator.text.template.budget import RenderLimits
from tokenwire.coordinator.text.template.chat_template import ChatTemplate
from tokenwire.errors import InvalidRequest

LIMITS = RenderLimits(seconds=0.2, characters=2_000_000)


LONG = "{% set a = 'a' * 100000 %}"


def render_bounded(source: str, **options: Any) -> str:
    """Render a template under narrow limits."""
    return ChatTemplate(source, {}, limits=LIMITS).render_messages(HELLO, **options)


def growing(step: str) -> str:
    """Return a template that repeats a step 60 times on a value that it doubles."""
    start = "{% set ns = namespace(s='xxxxxxxx', l=[1], n=10) %}"
    return start + "{% for i in range(60) %}" + step + "{% endfor %}{{ ns.s | length }}"


def compare_with_jinja(expression: str) -> None:
    """Render an expression as Jinja's own sandbox does: the value, or the kind of error."""
    values: dict[str, Any] = {"s": "banana <b>", "xs": [3, 1, 2], "ms": [{"role": "a", "n": 1}, {"role": "b", "n": 2}]}
    ours = ChatTemplate("{{ " + expression + " }}", {})
    expected, failure = None, ""
    try:
        expected = ImmutableSandboxedEnvironment().from_string("{{ " + expression + " }}").render(values)
    except Exception as error:
        failure = str(error)
    if expected is not None:
        assert ours.render_messages(HELLO, **values) == expected
    else:
        with pytest.raises(InvalidRequest, match=re.escape(failure)):
            ours.render_messages(HELLO, **values)
