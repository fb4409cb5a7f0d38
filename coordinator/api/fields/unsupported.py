"""Fields that change nothing or are not served: known ones are refused by name, unknown ones named once in the log."""

import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from tokenwire.errors import InvalidRequest

log = logging.getLogger(__name__)

# Fields that change nothing about the answer: accepted, as vLLM and OpenAI do.
_HARMLESS = frozenset(
    {
        *("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"),
        "prompt_cache_retention",
    }
)
_MOST_NAMED = 100
# What clients of vLLM may know such a refusal by.
_WORDS = {
    "suffix": "suffix is only supported for models with FIM completion rendering",
    "mm_processor_kwargs": "Per-request mm_processor_kwargs are disabled: this server takes text only.",
    "media_io_kwargs": "Per-request media_io_kwargs are disabled: this server takes text only.",
}


class UnsupportedFields:
    """Refuses known fields that are not served, with the values that change nothing let through."""

    def __init__(self, not_served: Mapping[str, tuple[Any, ...]], harmless: Iterable[str] = ()) -> None:
        """not_served: by name, the values that change nothing. harmless: fields to ignore without a word."""
        self._not_served = not_served
        self._harmless = _HARMLESS.union(harmless)
        self._named: set[str] = set()

    def check_body(self, body: BaseModel) -> None:
        """Check a request, whether its model declares a field's type or nothing of it. Raises InvalidRequest."""
        declared = type(body).model_fields
        typed = {name: getattr(body, name) for name in self._not_served if name in declared}
        self.check(
            {**{name: typed[name] for name in typed if name in body.model_fields_set}, **(body.model_extra or {})}
        )

    def check(self, extra: Mapping[str, Any] | None) -> None:
        """Check the fields that the request's model does not declare. Raises InvalidRequest."""
        for name, value in (extra or {}).items():
            if name in self._not_served:
                if value not in self._not_served[name]:
                    raise InvalidRequest(_WORDS.get(name) or f"`{name}` is not supported.", param=name)
            elif name not in self._harmless and name not in self._named and len(self._named) < _MOST_NAMED:
                self._named.add(name)
                log.warning("requests carry the unknown field %s: ignored", json.dumps(name[:100]))
