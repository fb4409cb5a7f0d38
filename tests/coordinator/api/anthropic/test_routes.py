"""Routes of the Messages API."""

from tokenwire.coordinator.api.anthropic.routes import SystemPlacement
from tokenwire.coordinator.text.template.chat_template import ChatTemplate


def test_templates_that_reject_later_system_messages_are_detected() -> None:
    """By an error for a second one."""
    check = "{% if m.role == 'system' and not loop.first %}{{ raise_exception('no') }}{% endif %}"
    strict = "{% for m in messages %}" + check + "{% endfor %}"
    placement = SystemPlacement()

    assert placement.is_first(ChatTemplate(strict, {}))
    assert not placement.is_first(ChatTemplate("{{ messages }}", {}))
