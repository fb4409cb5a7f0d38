"""Requests' own templates are rendered in a child process."""

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator
from typing import Any

import psutil
import pytest

from tests.coordinator.text.template import conversations
from tests.coordinator.text.template.rendering import HELLO
from tokenwire.coordinator.text.template.budget import RenderLimits
from tokenwire.coordinator.text.template.chat_template import ChatTemplate
from tokenwire.coordinator.text.template.renderer_process import MAX_SOURCE, IsolatedRenderer
from tokenwire.coordinator.text.template.template_options import TemplateOptions
from tokenwire.errors import InvalidRequest


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
    """A value that contains itself 2**60 times is rejected without blocking the loop, and the next template renders."""
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
        with contextlib.suppress(psutil.ZombieProcess):  # left by an earlier test
            if "tokenwire.coordinator.text.template.renderer_main" in process.cmdline():
                process.kill()

    assert await render_own(isolated, "two") == "two"


async def test_a_cancelled_rendering_does_not_affect_the_next(isolated: IsolatedRenderer) -> None:
    """Its text is not returned to the next request."""
    slow = "{% for i in range(2000000 // 20) %}{% for j in range(100) %}{% endfor %}{% endfor %}old"
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(render_own(isolated, slow), 0.3)
    assert await render_own(isolated, "new") == "new"


async def test_requests_own_templates_are_rejected_unless_trusted(isolated: IsolatedRenderer) -> None:
    """Without a renderer they are rejected as in vLLM, in the field or in the kwargs; names are accepted."""
    for options in (TemplateOptions(chat_template="x"), TemplateOptions(kwargs={"chat_template": "x"})):
        with pytest.raises(InvalidRequest, match="--trust-request-chat-template is not set") as caught:
            await ChatTemplate("m", {}).render_messages_async(HELLO, options)
        assert caught.value.param == "chat_template"
        assert await ChatTemplate("m", {}, untrusted=isolated).render_messages_async(HELLO, options) == "x"
    named = ChatTemplate({"default": "d", "other": "o"}, {})
    assert await named.render_messages_async(HELLO, TemplateOptions(chat_template="other")) == "o"
    with pytest.raises(InvalidRequest, match=f"at most {MAX_SOURCE} characters"):
        await render_own(isolated, "x" * (MAX_SOURCE + 1))
