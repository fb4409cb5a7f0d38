"""Operations that amplify their input are estimated before they run."""

from typing import Any

import pytest
from jinja2 import TemplateError

from tests.coordinator.text.template.bounded import LONG, growing, render_bounded
from tokenwire.coordinator.text.template import operation_costs as costs
from tokenwire.coordinator.text.template.budget import Budget, RenderLimits
from tokenwire.errors import InvalidRequest


@pytest.mark.parametrize(
    "source",
    [
        growing("{% set ns.s = ns.s + ns.s %}"),
        growing("{% set ns.s = ns.s ~ ns.s %}"),
        growing("{% set ns.s %}{{ ns.s }}{{ ns.s }}{% endset %}"),
        growing("{% set ns.s = ns.s.replace('x', 'xx') %}"),
        growing("{% set ns.l = ns.l + ns.l %}"),
        growing("{% set ns.n = ns.n * ns.n %}"),
        "{{ 'x' * 10**9 }}",
        "{{ 10**9 * [1] }}",
        "{{ 7 ** (10**9) }}",
        "{{ '%999999999d' % 1 }}",
        "{{ '%*d' % (999999999, 1) }}",
        "{{ '%99999999999999999999d' % 1 }}",
        "{{ '{:999999999}'.format(1) }}",
        "{{ '{:{}}'.format(1, 999999999) }}",
        "{{ '{a:999999999}'.format_map({'a': 1}) }}",
        "{{ 'x'.center(999999999) }}{{ 'x'.zfill(999999999) }}",
        "{{ 'x'.encode().ljust(999999999) }}",
        "{{ '\t'.expandtabs(999999999) }}",
        LONG + "{{ a.replace('', a) | length }}",
        LONG + "{{ a.join(range(100000) | map('string')) | length }}",
        LONG + "{{ a.translate({97: a}) | length }}",
        LONG + "{% for i in range(1000) %}{{ a }}{% endfor %}",
        LONG + "{% macro f() %}{% for i in range(1000) %}{{ a }}{% endfor %}{% endmacro %}{{ f() | length }}",
        "{{ (1).to_bytes(999999999, 'big') | length }}",
    ],
)
def test_templates_with_too_much_output_are_rejected(source: str) -> None:
    """Operations that amplify their input are rejected before they run."""
    with pytest.raises(InvalidRequest, match="created more than 2000000 characters"):
        render_bounded(source)


@pytest.mark.parametrize(
    ("form", "values"),
    [("%s-%s", ("abc", "de")), ("%5d", 1), ("%-7s|", "a"), ("%*d", (9, 1)), ("%(a)3s", {"a": "x"}), ("%%", ())],
)
def test_formatted_text_is_not_longer_than_estimated(form: str, values: Any) -> None:
    """Widths may be in the text or among the values."""
    assert len(form % values) <= costs.percent(form, values)


@pytest.mark.parametrize("count", [None, -1, 0, 1, 9])
@pytest.mark.parametrize(("old", "new"), [("a", "bb"), ("", "-"), ("aa", "a"), ("x", "yyy")])
def test_replaced_text_is_not_longer_than_estimated(old: str, new: str, count: int | None) -> None:
    """With any number of replacements."""
    text = "banana"

    assert len(text.replace(old, new, -1 if count is None else count)) <= costs.replaced(text, old, new, count)


def test_sums_are_charged_before_they_are_made() -> None:
    """Of texts and lists; numbers cost nothing."""
    budget = Budget(RenderLimits(characters=100))

    assert costs.add(budget, [1, 2.5]) == 3.5
    assert budget.spent == 0
    assert costs.add(budget, ["ab", "c", "d"]) == "abcd"
    assert budget.spent == 3 + 4
    with pytest.raises(TemplateError):
        costs.add(budget, [[1] * 10, [2] * 10])
