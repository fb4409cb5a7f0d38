"""Routes of the Messages API."""

from tokenwire.coordinator.api.anthropic.routes import SystemPlacement
from tokenwire.coordinator.text.template.chat_template import ChatTemplate


def test_templates_are_asked_where_system_messages_may_stand() -> None:
    """One that complains of a second one wants all of them in front."""
    check = "{% if m.role == 'system' and not loop.first %}{{ raise_exception('no') }}{% endif %}"
    strict = "{% for m in messages %}" + check + "{% endfor %}"
    placement = SystemPlacement()

    assert placement.is_first(ChatTemplate(strict, {}))
    assert not placement.is_first(ChatTemplate("{{ messages }}", {}))
