"""The budget of one rendering, and which ones are quick enough for the event loop."""

import asyncio
import math
import threading
from typing import Any

import pytest
from jinja2 import TemplateError

from tests.coordinator.text.template.rendering import HELLO
from tokenwire.coordinator.text.template.budget import Budget, DeadlinePassed, LimitExceeded, RenderLimits, TemplatePace
from tokenwire.coordinator.text.template.chat_template import ChatTemplate

LOOPS = "{% for a in range(4000) %}{% for b in range(1000) %}{% endfor %}{% endfor %}"
SORTS = "{{ (range(99999) | list | sort) | length }}"


def test_characters_add_up() -> None:
    """The limit itself may be reached."""
    budget = Budget(RenderLimits(characters=10))

    budget.charge(4)
    budget.charge(6)
    with pytest.raises(TemplateError, match="more than 10 characters"):
        budget.charge(1)


def test_a_rendering_has_a_deadline() -> None:
    """It begins with the budget."""
    budget = Budget(RenderLimits(seconds=5))
    budget.tick()

    budget.began_at -= 6
    with pytest.raises(TemplateError, match="longer than 5 seconds"):
        budget.tick()


def test_a_template_is_quick_once_it_was() -> None:
    """With few messages, in a thread. One that was not on the event loop is not for long, whatever comes meanwhile."""
    pace = TemplatePace()
    pace.on_rendered(1.0)
    assert pace.quick_from == math.inf
    pace.on_rendered(0.001)
    assert pace.quick_from == -math.inf
    assert not pace.on_slow(1000.0, LimitExceeded("too many characters"))
    pace.on_rendered(0.001)
    assert pace.quick_from == 1600.0


def test_a_template_is_not_slow_because_its_process_was_stopped() -> None:
    """What took too long on the event loop takes a moment of a core in a thread."""
    pace = TemplatePace()
    assert pace.on_slow(1000.0, DeadlinePassed("too long"))
    pace.on_rendered(1.0, again=True)
    assert pace.quick_from == 1600.0
    pace.on_rendered(0.001, again=True)
    assert pace.quick_from == -math.inf


@pytest.mark.parametrize("slow", [LOOPS, SORTS])
async def test_what_a_template_does_for_some_messages_keeps_nobody_waiting(slow: str) -> None:
    """It takes long in a thread, where others go on, and begins no more on the event loop."""
    source = "{% if messages[0].content == 'slow' %}" + slow + "{% else %}ok{% endif %}"
    template, threads = ChatTemplate(source, {}), list[Any]()
    render = template.render_values

    def noted(*arguments: Any) -> str:
        threads.append(threading.current_thread() is threading.main_thread())
        return render(*arguments)

    template.render_values = noted  # type: ignore[method-assign, assignment]
    for _ in range(2):
        assert await template.render_messages_async(HELLO) == "ok"
    assert threads == [False, True]
    await asyncio.gather(*(template.render_messages_async([{"role": "user", "content": "slow"}]) for _ in range(2)))
    assert threads[2:] in ([True, False, False], [True, False, True, False])
    await template.render_messages_async(HELLO)
    assert threads[-1] is False
