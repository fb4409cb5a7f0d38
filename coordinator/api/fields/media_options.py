"""Fields for how a request's media are loaded and processed."""

import json
from typing import Any

from tokenwire.coordinator.output.settings import ApiSettings
from tokenwire.coordinator.parsing.request_model import RequestModel
from tokenwire.errors import InvalidRequest

_CHANGES = {"mm_processor_kwargs": "preprocessing", "media_io_kwargs": "media loading"}
"""What the fields change, in vLLM's words."""
MEDIA_OPTIONS_NOT_SERVED: dict[str, tuple[Any, ...]] = dict.fromkeys(_CHANGES, (None, {}))
"""The fields where a route has no media, with the values that have no effect."""


class MediaOptionFields(RequestModel):
    """Fields of requests with messages. They change what media cost, and so are for trusted clients alone."""

    media_io_kwargs: dict[str, dict[str, Any]] | None = None
    mm_processor_kwargs: dict[str, Any] | None = None

    def media_options(self, api: ApiSettings) -> str | None:
        """Return the options for media as JSON; None without any. Raises InvalidRequest where they are not trusted."""
        given = {name: value for name in _CHANGES if (value := getattr(self, name))}
        if given and not api.trust_media_options:
            name = next(iter(given))
            raise InvalidRequest(
                f"Per-request {name} are disabled by default because they can change multimodal "
                f"{_CHANGES[name]} resource usage. Start the server with --trust-request-mm-kwargs only when "
                "clients are trusted.",
                param=name,
            )
        return json.dumps(given, sort_keys=True) if given else None
