"""Limits on time and output of templates, across the sandbox, its filters and guards, and the renderer process.

One file, since each limit must hold whichever of these modules enforces it.
"""

import asyncio
import gc
import re
from collections.abc import AsyncIterator
from typing import Any

import psutil
import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tests.coordinator.text.template import conversations
from tokenwire.coordinator.text.template.budget import RenderLimits
from tokenwire.coordinator.text.template.chat_template import ChatTemplate
from tokenwire.coordinator.text.template.renderer_process import MAX_SOURCE, IsolatedRenderer
from tokenwire.coordinator.text.template.template_options import TemplateOptions
from tokenwire.errors import InvalidRequest

LIMITS = RenderLimits(seconds=0.2, characters=2_000_000)
HELLO = [{"role": "user", "content": "hi"}]
LONG = "{% set a = 'a' * 100000 %}"


def render(source: str, **options: Any) -> str:
    """Render a template under narrow limits."""
    return ChatTemplate(source, {}, limits=LIMITS).render_messages(HELLO, **options)


def growing(step: str) -> str:
    """Return a template that repeats a step 60 times on a value that it doubles."""
    start = "{% set ns = namespace(s='xxxxxxxx', l=[1], n=10) %}"
    return start + "{% for i in range(60) %}" + step + "{% endfor %}{{ ns.s | length }}"


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
    """Loops, conditions, macros, calls, recursion and blocks are refused if they run for too long."""
    with pytest.raises(InvalidRequest, match=r"took longer than 0\.2 seconds|created more than"):
        render(source)


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
        "{{ '%999999999d' | format(1) }}",
        "{{ '%(a)999999999d' | format(a=1) }}",
        "{{ '{:999999999}'.format(1) }}",
        "{{ '{:{}}'.format(1, 999999999) }}",
        "{{ '{a:999999999}'.format_map({'a': 1}) }}",
        "{{ 'x' | center(999999999) }}",
        "{{ 'x'.center(999999999) }}{{ 'x'.zfill(999999999) }}",
        "{{ 'x'.encode().ljust(999999999) }}",
        "{{ '\t'.expandtabs(999999999) }}",
        "{{ 'x\ny' | indent(999999999) }}",
        LONG + "{{ a | replace('a', a) | length }}",
        LONG + "{{ a.replace('', a) | length }}",
        LONG + "{{ range(100000) | join(a) | length }}",
        LONG + "{{ a.join(range(100000) | map('string')) | length }}",
        LONG + "{{ a.translate({97: a}) | length }}",
        LONG + "{{ a | wordwrap(1, wrapstring=a) | length }}",
        LONG + "{{ ([a] * 1000) | map('upper') | list | length }}",
        LONG + "{{ ([a] * 1000) | join | length }}",
        LONG + "{% for i in range(1000) %}{{ a }}{% endfor %}",
        LONG + "{% macro f() %}{% for i in range(1000) %}{{ a }}{% endfor %}{% endmacro %}{{ f() | length }}",
        "{{ range(100000) | map('center', 1000) | list | length }}",
        "{{ ([[1] * 100] * 1000) | sum(start=[]) | length }}",
        "{{ (1).to_bytes(999999999, 'big') | length }}",
        "{{ 1.5 | round(999999999, 'ceil') }}",
        "{{ [1] | batch(999999999, 'x') | list }}",
        "{{ [1] | slice(999999999) | list }}",
        "{{ lipsum(999999) }}",
        "{{ [[1]] | tojson(indent=99999999) }}",
        "{{ [range(100000) | list] | tojson(indent=100) }}",
    ],
)
def test_templates_with_too_much_output_are_refused(source: str) -> None:
    """Operations that amplify their input are refused before they run."""
    with pytest.raises(InvalidRequest, match="created more than 2000000 characters"):
        render(source)


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
        render(source)
    assert caught.value.param == "chat_template"


def test_an_error_message_is_truncated() -> None:
    """A template cannot make it longer than the limit of messages."""
    with pytest.raises(InvalidRequest) as caught:
        render("{{ raise_exception('x' * 1000000) }}")
    assert len(caught.value.message) < 10_000


EXPRESSIONS = [
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
    "xs | map('center', 4) | join('|')",
    "lipsum(0)",
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_checked_operations_equal_jinjas(expression: str) -> None:
    """Values and kinds of errors, for constants and for variables."""
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


@pytest.fixture
async def isolated() -> AsyncIterator[IsolatedRenderer]:
    """Return a renderer with a child process."""
    renderer = IsolatedRenderer(RenderLimits(seconds=1.0), memory_mb=512)
    yield renderer
    await renderer.close()
    gc.collect()  # so that an unclosed pipe fails this test


async def render_own(renderer: IsolatedRenderer | None, source: str, messages: Any = HELLO, **fields: Any) -> str:
    """Render messages with a request's own template."""
    template = ChatTemplate("the model's", {"bos_token": "<s>"}, untrusted=renderer)
    return await template.render_messages_async(messages, TemplateOptions(chat_template=source, **fields))


async def test_a_requests_own_template_renders_like_the_models(isolated: IsolatedRenderer) -> None:
    """It gets messages, special tokens, tools and kwargs, with content in its format; its errors are returned."""
    source = "{{ bos_token }}{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}{{ x }}"
    source += "{{ tools | tojson }}"
    fields: dict[str, Any] = {"tools": conversations.TOOLS, "kwargs": {"x": "é\ud800"}}
    expected = ChatTemplate(source, {"bos_token": "<s>"}).render_messages(HELLO, tools=conversations.TOOLS, x="é\ud800")
    assert await render_own(isolated, source, **fields) == expected
    assert await render_own(isolated, source, **fields) == expected
    with pytest.raises(InvalidRequest, match=r"^Not so!$"):
        await render_own(isolated, "{{ raise_exception('Not so!') }}")
    with pytest.raises(InvalidRequest, match=r"messages\[0\] must be an object") as caught:
        await render_own(isolated, source, messages=[1])
    assert caught.value.param == "messages"
    with pytest.raises(InvalidRequest, match="does not parse"):
        await render_own(isolated, "{% if %}")


async def test_a_template_that_no_sandbox_stops_is_killed(isolated: IsolatedRenderer) -> None:
    """A value that contains itself 2**60 times is refused without blocking the loop, and the next template renders."""
    bomb = "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}"
    task = asyncio.create_task(render_own(isolated, bomb))
    waiting = asyncio.create_task(render_own(isolated, "ok"))
    turns = 0
    while not task.done():
        await asyncio.sleep(0.01)
        turns += 1
    assert turns > 10
    with pytest.raises(InvalidRequest, match=r"took longer|too much memory"):
        await task
    assert await waiting == "ok"


async def test_a_killed_process_fails_no_request(isolated: IsolatedRenderer) -> None:
    """The process may be killed at any time, for example for lack of memory; the next request restarts it."""
    assert await render_own(isolated, "one") == "one"

    for process in psutil.Process().children():
        if "tokenwire.coordinator.text.template.renderer_main" in process.cmdline():
            process.kill()

    assert await render_own(isolated, "two") == "two"


async def test_a_cancelled_rendering_does_not_affect_the_next(isolated: IsolatedRenderer) -> None:
    """Its text is not returned to the next request."""
    slow = "{% for i in range(2000000 // 20) %}{% for j in range(100) %}{% endfor %}{% endfor %}old"
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(render_own(isolated, slow), 0.3)
    assert await render_own(isolated, "new") == "new"


async def test_requests_own_templates_are_refused_unless_trusted(isolated: IsolatedRenderer) -> None:
    """Without a renderer they are refused as in vLLM, in the field or in the kwargs; names are accepted."""
    for options in (TemplateOptions(chat_template="x"), TemplateOptions(kwargs={"chat_template": "x"})):
        with pytest.raises(InvalidRequest, match="--trust-request-chat-template is not set") as caught:
            await ChatTemplate("m", {}).render_messages_async(HELLO, options)
        assert caught.value.param == "chat_template"
        assert await ChatTemplate("m", {}, untrusted=isolated).render_messages_async(HELLO, options) == "x"
    named = ChatTemplate({"default": "d", "other": "o"}, {})
    assert await named.render_messages_async(HELLO, TemplateOptions(chat_template="other")) == "o"
    with pytest.raises(InvalidRequest, match=f"at most {MAX_SOURCE} characters"):
        await render_own(isolated, "x" * (MAX_SOURCE + 1))
