"""Where system messages may stand: some templates take one in first place only, and Anthropic's stand anywhere."""

import logging
from weakref import WeakKeyDictionary

from tokenwire.coordinator.text.template.chat_template import ChatTemplate
from tokenwire.errors import InvalidRequest

log = logging.getLogger(__name__)

_PROBE = [{"role": role, "content": "t"} for role in ("system", "user", "system", "user")]


class SystemPlacement:
    """Finds out, once for each template and when it is first asked."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[ChatTemplate, bool] = WeakKeyDictionary()

    def is_first(self, template: ChatTemplate) -> bool:
        """Tell whether a template takes a system message in first place only."""
        if template not in self._known:
            self._known[template] = self._try(template)
        return self._known[template]

    def _try(self, template: ChatTemplate) -> bool:
        try:
            template.render_messages(_PROBE)
        except InvalidRequest:
            log.warning(
                "the chat template takes a system message in first place only: those within conversations of "
                "/v1/messages are put there, and each new one costs the prefix cache all that follows"
            )
            return True
        return False
