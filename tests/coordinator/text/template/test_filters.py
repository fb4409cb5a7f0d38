"""Filters cost what they create, and otherwise equal Jinja's."""

import pytest

from tests.coordinator.text.template import conversations
from tests.coordinator.text.template.bounded import LONG, compare_with_jinja, render_bounded
from tests.coordinator.text.template.rendering import render_messages
from tokenwire.errors import InvalidRequest


@pytest.mark.parametrize(
    "source",
    [
        "{{ '%999999999d' | format(1) }}",
        "{{ '%(a)999999999d' | format(a=1) }}",
        "{{ 'x' | center(999999999) }}",
        "{{ 'x\ny' | indent(999999999) }}",
        LONG + "{{ a | replace('a', a) | length }}",
        LONG + "{{ range(100000) | join(a) | length }}",
        LONG + "{{ a | wordwrap(1, wrapstring=a) | length }}",
        LONG + "{{ ([a] * 1000) | map('upper') | list | length }}",
        LONG + "{{ ([a] * 1000) | join | length }}",
        "{{ range(100000) | map('center', 1000) | list | length }}",
        "{{ ([[1] * 100] * 1000) | sum(start=[]) | length }}",
        "{{ 1.5 | round(999999999, 'ceil') }}",
        "{{ [1] | batch(999999999, 'x') | list }}",
        "{{ [1] | slice(999999999) | list }}",
        "{{ lipsum(999999) }}",
        "{{ [[1]] | tojson(indent=99999999) }}",
        "{{ [range(100000) | list] | tojson(indent=100) }}",
    ],
)
def test_filters_with_too_much_output_are_rejected(source: str) -> None:
    """Filters that amplify their input are rejected before they run."""
    with pytest.raises(InvalidRequest, match="created more than 2000000 characters"):
        render_bounded(source)


FILTERED = [
    "xs | map('center', 4) | join('|')",
    "s | replace('a', 'bb')",
    "s | replace('a', 'bb', 1)",
    "5 | replace('5', 6)",
    "xs | join",
    "xs | join(', ')",
    "ms | join(', ', attribute='role')",
    "ms | join('-', 'role')",
    "missing | join",
    "xs | sum",
    "ms | sum(attribute='n')",
    "[[1], [2]] | sum(start=[])",
    "['a'] | sum(start='')",
    "xs | sum(start=10)",
    "s | center(20)",
    "s | center",
    "'a\nb\n\nc' | indent(2, first=true, blank=true)",
    "'a\nb\n\nc' | indent('> ')",
    "'a\nb' | indent",
    "'%s and %s' | format(1, s)",
    "'%(x)s' | format(x=s)",
    "'one two three four' | wordwrap(5)",
    "'onetwothreefour' | wordwrap(5, wrapstring='+')",
    "2.567 | round(1)",
    "2.567 | round(1, 'floor')",
    "42 | round(-1)",
    "xs | batch(2, 0) | list",
    "xs | slice(2, 0) | map('list') | list",
    "xs | reverse | list",
    "s | upper | lower | title | capitalize | reverse",
    "'<a>' | escape",
    "'<a>' | e + '<b>'",
    "'<a>' | forceescape | striptags",
    "'a b' | urlencode",
    "{'b': 1} | urlencode",
    "lipsum(0)",
]


@pytest.mark.parametrize("expression", FILTERED)
def test_checked_filters_equal_jinjas(expression: str) -> None:
    """Values and kinds of errors, for constants and for variables."""
    compare_with_jinja(expression)


def test_json_is_not_html() -> None:
    """tojson does not escape characters and accepts json.dumps's options."""
    tools = conversations.TOOLS
    assert "\"Weather of a <city> & more: 'ünïcode'\"" in render_messages("{{ tools | tojson }}", tools=tools)
    assert (
        render_messages('{{ {"b": 1, "a": [1]} | tojson(indent=1, sort_keys=true) }}')
        == '{\n "a": [\n  1\n ],\n "b": 1\n}'
    )
    assert render_messages('{{ "é" | tojson(ensure_ascii=true) }}') == '"\\u00e9"'
