"""Pydantic models of client input whose validation is cheap even for invalid input."""

from typing import Any

from pydantic import BaseModel, GetCoreSchemaHandler
from pydantic_core import CoreSchema

_COLLECTIONS = frozenset({"list", "tuple", "set", "frozenset", "dict"})
_VALUES = frozenset({"default", "metadata"})
"""Keys of a schema that are not schemas."""


def _fail_fast(schema: Any) -> None:
    if isinstance(schema, dict):
        kind = schema.get("type")
        if not isinstance(kind, str):  # schemas by the names of fields
            parts = list(schema.values())
        else:
            if kind in _COLLECTIONS:
                schema["fail_fast"] = True
            parts = [part for name, part in schema.items() if name not in _VALUES]
        for part in parts:
            _fail_fast(part)
    elif isinstance(schema, list | tuple):
        for part in schema:
            _fail_fast(part)


class RequestModel(BaseModel):
    """Base of all models of request bodies.

    A list or an object with a million invalid items is one error instead of a million, which would take seconds and
    gigabytes to collect.
    """

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return pydantic's schema, with collections that fail at the first invalid item."""
        schema = handler(source)
        _fail_fast(schema)
        return schema
