"""Messages and templates shared by tests."""

from typing import Any

from tokenwire.coordinator.text.template.chat_template import ChatTemplate

HELLO = [{"role": "user", "content": "hi"}]


ECHO = "{% for m in messages %}[{{ m.role }}|{{ m.content }}]{% endfor %}"


def render_messages(source: str, messages: list[dict[str, Any]] | None = None, **options: Any) -> str:
    """Render a template for messages."""
    return ChatTemplate(source, {"bos_token": "<s>"}).render(HELLO if messages is None else messages, **options)
