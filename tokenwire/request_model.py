"""Models of what clients send, whose validation costs little however wrong it is."""

from typing import Any

from pydantic import BaseModel, GetCoreSchemaHandler
from pydantic_core import CoreSchema

_COLLECTIONS = frozenset({"list", "tuple", "set", "frozenset", "dict"})
_VALUES = frozenset({"default", "metadata"})
"""What a schema holds beside other schemas."""


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
    """Base of every model that a request's body is read with.

    A list or an object of a million wrong items is one error instead of a million, which would take seconds and
    gigabytes to collect.
    """

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return pydantic's schema, with collections that stop at the first wrong item."""
        schema = handler(source)
        _fail_fast(schema)
        return schema
