"""What a JSON schema may say that a grammar of it leaves out, so that a reply need not be valid."""

from collections.abc import Iterator
from typing import Any

_IGNORED = (
    *("multipleOf", "uniqueItems", "contains", "minContains", "maxContains", "not", "if", "then", "else"),
    *("dependentRequired", "dependentSchemas", "dependencies", "propertyNames"),
)
_TOGETHER = (
    *(("pattern", "minLength"), ("pattern", "maxLength"), ("format", "minLength"), ("format", "maxLength")),
    ("patternProperties", "properties"),
)
"""Keywords of which one is ignored beside the other."""
_BY_NAME = ("properties", "patternProperties", "$defs", "definitions")
"""Keywords whose value has a schema for each name."""
_VALUES = ("enum", "const", "default", "examples")
"""Keywords whose value is no schema."""


def find_ignored(schema: Any) -> str:
    """Return the keyword of a schema that its grammar ignores, two if only together; empty if there is none."""
    return next(_ignored(schema), "")


def _ignored(schema: Any) -> Iterator[str]:
    for each in schema if isinstance(schema, list) else ():
        yield from _ignored(each)
    if not isinstance(schema, dict):
        return
    yield from (repr(name) for name in _IGNORED if schema.get(name) not in (None, False))
    yield from (f"{one!r} with {other!r}" for one, other in _TOGETHER if one in schema and other in schema)
    if len(schema.get("allOf", ())) > 1:
        yield "'allOf' with several schemas"
    for name, value in schema.items():
        if name in _BY_NAME and isinstance(value, dict):
            for each in value.values():
                yield from _ignored(each)
        elif name not in _VALUES:
            yield from _ignored(value)
