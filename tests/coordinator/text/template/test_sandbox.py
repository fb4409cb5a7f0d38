"""Templates end in time, and otherwise do what Jinja's sandbox does."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from jinja2 import TemplateError

from tests.coordinator.text.template.bounded import compare_with_jinja, render_bounded
from tokenwire.coordinator.text.template.budget import RenderLimits
from tokenwire.coordinator.text.template.sandbox import BoundedEnvironment
from tokenwire.errors import InvalidRequest


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
        "{% for i in range(100000) if range(100000) | sum > 1e20 %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(50) }}",
        "{% macro f(n) %}{{ caller(n) if n }}{% endmacro %}{% for i in range(100000) %}{% for j in range(100000) %}"
        "{% call(n) f(3) %}{% endcall %}{% endfor %}{% endfor %}",
        "{% for x in range(100000) recursive %}{% if loop.depth < 4 %}{{ loop(range(100000)) }}{% endif %}{% endfor %}",
        "{% set ns = namespace(n=0) %}{% block a %}{% set ns.n = ns.n + 1 %}{% for i in range(100000) %}"
        "{% for j in range(100000) %}{% endfor %}{% endfor %}{% endblock %}",
        "{{ ([range(100000) | list] * 1000) | tojson(indent=1) }}",
    ],
)
def test_endless_templates_end_in_time(source: str) -> None:
    """Loops, conditions, macros, calls, recursion and blocks are rejected if they run for too long."""
    with pytest.raises(InvalidRequest, match=r"took longer than 0\.2 seconds|created more than"):
        render_bounded(source)


OPERATIONS = [
    "'a' + 'b' + s",
    "1 + 2 + 3 * 4 ** 2 % 5",
    "[1] + [2] * 3",
    "'a' ~ 1 ~ none ~ s",
    "1.5 + 2",
    "(1, 2) + (3,)",
    "s + 1",
    "1 + s",
    "s + missing",
    "s * 3",
    "3 * s",
    "2 ** 0.5",
    "2 ** -1",
    "'%s-%5.2f-%d' % (s, 1.5, 3)",
    "'%5s|' % s",
    "'%(a)s' % {'a': 1}",
    "7 % 4",
    "'{}-{:>6}-{a!r:{w}}'.format(s, 1, a=s, w=9)",
    "'{a}'.format_map({'a': 1})",
    "'{0.__class__}'.format(s)",
    "s.replace('a', 'bb')",
    "s.replace('a', 'bb', 1)",
    "s.replace('', '-')",
    "', '.join(['a', 'b'])",
    "', '.join(xs | map('string'))",
    "', '.join('abc')",
    "', '.join([1])",
    "s.center(12, '*') ~ s.ljust(9) ~ s.rjust(9) ~ '7'.zfill(3)",
    "'a\tb'.expandtabs() ~ 'a\tb'.expandtabs(2)",
    "s.translate({97: 'x'})",
    "(1).to_bytes(2, 'big')",
]


@pytest.mark.parametrize("expression", OPERATIONS)
def test_checked_operations_equal_jinjas(expression: str) -> None:
    """Values and kinds of errors, for constants and for variables."""
    compare_with_jinja(expression)


def test_there_is_no_budget_outside_of_a_rendering() -> None:
    """So the compiler cannot compute constants that cost too much."""
    with pytest.raises(RuntimeError, match="nothing is being rendered"):
        BoundedEnvironment().budget  # noqa: B018


def test_renderings_in_several_threads_have_budgets_of_their_own() -> None:
    """One that exceeds its limits stops no other."""
    environment = BoundedEnvironment()
    template = environment.compile_tree(environment.parse("{{ 'x' * n }}"))
    limits = RenderLimits(characters=1000)

    def rendered(n: int) -> int:
        try:
            return len(environment.render(template, {"n": n}, limits))
        except TemplateError:
            return -1

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(rendered, [400, 5000] * 8)) == [400, -1] * 8
